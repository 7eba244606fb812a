#include "ac2/internal/opening/open_region.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "ac2/internal/budget/budget.h"
#include "ac2/internal/following/planned_step.h"
#include "ac2/internal/libtorch/managed_tensors.h"
#include "ac2/internal/libtorch/out_of_memory.h"
#include "ac2/internal/libtorch/set_data_watch.h"
#include "ac2/internal/libtorch/spelling.h"
#include "ac2/internal/libtorch/tensor_meta.h"
#include "ac2/internal/opening/region_observers.h"
#include "ac2/internal/policy_names/plan_policy.h"
#include "ac2/internal/record/held_arguments.h"
#include "ac2/internal/record/interceptor.h"
#include "ac2/internal/record/left_storage.h"
#include "ac2/internal/record/write_watch.h"
#include "ac2/internal/region/engine.h"
#include "ac2/internal/region/region.h"
#include "ac2/internal/replay/saved_tensor_hook.h"
#include "ac2/internal/report/shortage_note.h"
#include "ac2/policy_instance.h"

namespace ac2::internal {

namespace {

bool verify_by_environment() {
  const char* const value = std::getenv("AC2_VERIFY");
  const std::string_view text = value == nullptr ? "" : value;
  TORCH_CHECK(text.empty() || text == "0" || text == "1", "The environment variable AC2_VERIFY is \"", text,
              "\"; expected 1 (every region verifies its replays) or 0.");
  return text == "1";
}

std::vector<std::shared_ptr<RegionObserver>> observers_for(const OpeningOptions& options) {
  std::vector<std::shared_ptr<RegionObserver>> observers;
  if (options.verify || verify_by_environment()) {
    observers.push_back(verifying());
  }
  if (options.log) {
    observers.push_back(logging_to(options.log));
  }
  if (options.timeline) {
    observers.push_back(keeping_a_timeline());
  }
  return observers;
}

// The data that a managed parameter has been given may be an op's result, as `weight.data = elsewhere.clone()` inside
// of a region makes it. From here on it is the parameter's, which comes and goes, and no result that the region may
// hold.
void leave_to_manager(Tape& tape, const at::TensorBase& tensor) {
  if (!has_plain_storage(*tensor.unsafeGetTensorImpl())) {
    return;
  }
  c10::StorageImpl* storage = tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
  if (storage == nullptr || !is_managed(*storage)) {
    return;
  }
  const Tape::Lock locked(tape);
  const Value* value = locked->storages().peek(at::Tensor(tensor));
  if (value != nullptr && !value->is_managed() && !value->has_hooks() && value->is_known_to_index_and_hooks_alone()) {
    locked->storages().forget(storage);
  }
}

void set_data_in_regions(const at::TensorBase& tensor, SetData set_data) {
  SavedTensorHook::before_set_data(tensor);
  const LeftStorage left(tensor);
  set_data();
  if (const Region* region = ThreadRegions::here().innermost()) {
    left.stop_watching(*region->tape);
    leave_to_manager(*region->tape, tensor);
  }
}

// A plan's bytes count what its own bounds let be on its way.
OffloadOptions as_planned(const OffloadOptions& plan, const std::optional<OffloadOptions>& scope) {
  OffloadOptions both = scope.value_or(plan);
  both.min_bytes = std::min(both.min_bytes, plan.min_bytes);
  both.in_flight_bytes = std::min(both.in_flight_bytes, plan.in_flight_bytes);
  both.read_ahead_bytes = std::min(both.read_ahead_bytes, plan.read_ahead_bytes);
  return both;
}

// An option that would have no effect is an error. Nothing has changed yet.
void check_that_options_count(const RegionOptions& region) {
  const Region* around = ThreadRegions::here().innermost();
  const bool has_budget = region.budget != nullptr || region.plan_budget != nullptr ||
                          (around != nullptr && around->tape->budget() != nullptr);
  TORCH_CHECK(has_budget || region.forms.empty(), "The forms of a scope (", spelled("ScopeOptions::forms", "forms="),
              ") would have no effect: neither this scope nor one around it has a memory budget, so that there is "
              "always room. Give the scope one (",
              spelled("ScopeOptions::memory_budget", "memory_budget="), "), or no policy, so that it keeps what fits.");
  const Budget* of_region = around != nullptr ? around->tape->budget() : nullptr;
  TORCH_CHECK(region.budget == nullptr || !region.budget->has_ranks() || of_region == nullptr ||
                  of_region == region.budget.get(),
              "The group of a memory budget (", spelled("RankGroup", "group="),
              ") would have no effect: a scope around this one has another budget, which is the region's. Give the "
              "budget with the group to the outermost scope.");
  TORCH_CHECK(!has_budget || !region.keep_for_next_backward,
              "keep_for_next_backward would have no effect: the region has a memory budget, which decides what is held "
              "between two backwards; a scope without a policy has one too. Give the scope a policy and no budget, or "
              "leave keep_for_next_backward out.");
}

}  // namespace

std::shared_ptr<ScopeState> open_region(Policy policy, OpeningOptions options) {
  RegionOptions region{.observers = observers_for(options),
                       .budget = std::move(options.budget),
                       .offload = options.offload,
                       .gather_units = std::move(options.gather_units),
                       .keep_for_next_backward = options.keep_for_next_backward,
                       .forms = std::move(options.forms)};
  install_interceptor();
  install_write_watch();
  install_holding();
  install_engine();
  watch_set_data(&set_data_in_regions);
  set_out_of_memory_note([](const c10::Error& error, const FailedCall* call) {
    return shortage_note(error.what_without_backtrace(), call);
  });
  PolicyInstance instance = enter_for_region(policy);
  region.is_inexact = instance.is_inexact;
  if (const std::shared_ptr<const PlannedStep>& plan = planned_step_of(policy)) {
    region.plan_budget = std::make_shared<Budget>(plan->bytes, plan->costs);
    if (plan->copies) {
      region.offload = as_planned(*plan->copies, options.offload);
    }
  }
  check_that_options_count(region);
  return ThreadRegions::here().open(std::move(instance), region);
}

}  // namespace ac2::internal

#include "ac2/scope.h"

#include <c10/util/Exception.h>

#include <utility>

#include "ac2/internal/budget/whatever_fits.h"
#include "ac2/internal/libtorch/spelling.h"
#include "ac2/internal/opening/open_region.h"
#include "ac2/internal/region/budget_access.h"
#include "ac2/internal/region/close_scope.h"
#include "ac2/internal/region/region.h"
#include "ac2/internal/region/tensor_decision.h"
#include "ac2/internal/replay/replay_call.h"

namespace ac2 {

using internal::ThreadRegions;

namespace {

void check_offload_options(const OffloadOptions& options) {
  const auto check = [](const char* name, int64_t bytes) {
    TORCH_CHECK(bytes >= 0, "OffloadOptions::", name, " is ", bytes, "; expected a number of bytes, 0 or more.");
  };
  check("min_bytes", options.min_bytes);
  check("read_ahead_bytes", options.read_ahead_bytes);
  check("in_flight_bytes", options.in_flight_bytes);
  check("max_pinned_bytes", options.max_pinned_bytes);
}

// Null if there is none.
std::shared_ptr<internal::Budget> budget_of(const std::optional<MemoryBudget>& budget) {
  if (!budget) {
    return nullptr;
  }
  const std::shared_ptr<internal::Budget>& shared = internal::BudgetAccess::budget(*budget);
  if (shared->has_no_number()) {
    internal::stand_in_front();
  }
  return shared;
}

void warn_of_choices_that_differ(const std::shared_ptr<internal::Budget>& budget) {
  if (budget != nullptr && (budget->has_no_number() || budget->costs() != internal::CostSource::kModelled)) {
    TORCH_WARN_ONCE(
        "A region gathers units for replays (gather_units) and has a memory budget that goes by times or by the memory "
        "that is left. Processes that drop different values gather different units, and may wait for each other for "
        "ever. Give the region a number of bytes and modelled_costs, or no budget.");
  }
}

// Null if there is none.
std::shared_ptr<const SaveWithHooks> narrow_form_of(const std::optional<PolicyDecision>& form) {
  TORCH_CHECK(!form || form->save_with_hooks() != nullptr, "ScopeOptions::allow_inexact is ",
              to_string(form ? form->policy() : CheckpointPolicy::MUST_SAVE),
              "; expected a form to pack values in, a SaveWithHooks (",
              internal::spelled("policies::quantized_form(8)", "ac2.policies.quantized_form(8)"), ").");
  return form ? form->save_with_hooks() : nullptr;
}

}  // namespace

Policy internal::policy_for(const ScopeOptions& options) {
  return options.memory_budget.has_value() ? Policy::constant(CheckpointPolicy::PREFER_SAVE).named("no policy")
                                           : Policy("recompute_all");
}

PolicyScope::PolicyScope(Policy policy, ScopeOptions options) {
  const std::optional<MemoryBudget> budget = options.memory_budget.budget(options.modelled_costs);
  if (options.offload) {
    check_offload_options(*options.offload);
  }
  std::shared_ptr<internal::Budget> shared = budget_of(budget);
  if (options.gather_units) {
    warn_of_choices_that_differ(shared);
  }
  state_ = internal::open_region(std::move(policy), {.verify = options.verify,
                                                     .timeline = options.timeline,
                                                     .budget = std::move(shared),
                                                     .log = nullptr,
                                                     .offload = options.offload,
                                                     .gather_units = std::move(options.gather_units),
                                                     .keep_for_next_backward = options.keep_for_next_backward,
                                                     .narrow_form = narrow_form_of(options.allow_inexact)});
}

PolicyScope::PolicyScope(ScopeOptions options) : PolicyScope(internal::policy_for(options), options) {}

PolicyScope::PolicyScope(std::initializer_list<internal::NoOption> /*none*/) : PolicyScope(ScopeOptions()) {}

PolicyScope::~PolicyScope() noexcept(false) {
  internal::close_scope(state_);
}

std::shared_ptr<const Trace> PolicyScope::trace() const {
  return state_->trace;
}

void tag_with_policy(const at::Tensor& tensor, PolicyDecision decision) {
  TORCH_CHECK(tensor.defined(),
              "tag_with_policy was given an undefined tensor, which has nothing to keep. Tag the tensor "
              "after it has been computed.");
  internal::Region* region = ThreadRegions::here().recording();
  if (region == nullptr) {
    return;
  }
  TORCH_CHECK(!decision.saves() || !tensor.is_inference(),
              "Saving inference tensors is not supported: tag_with_policy was given ", to_string(decision.policy()),
              " for a tensor of sizes ", tensor.sizes(),
              " made in InferenceMode, whose changes nobody can notice. Tag a clone() made outside InferenceMode.");
  if (decision.save_with_hooks() != nullptr) {
    ThreadRegions::here().functions_given();
  }
  const std::shared_ptr<internal::Tape> tape = region->tape;
  const at::Tensor tagged = tensor;  // a pack function may drop the program's
  internal::decide_tensor(*tape, tagged, decision, internal::DecidedBy::kTag);
}

bool is_checkpoint_enabled() {
  return ThreadRegions::here().innermost() != nullptr;
}

bool is_recomputing() {
  return internal::is_replaying();
}

DisableCheckpointing::DisableCheckpointing() {
  ThreadRegions::here().disable();
}

DisableCheckpointing::~DisableCheckpointing() {
  ThreadRegions::here().enable();
}

}  // namespace ac2

#include "ac2/scope.h"

#include <c10/util/Exception.h>

#include <utility>

#include "ac2/internal/budget/whatever_fits.h"
#include "ac2/internal/forms/check_forms.h"
#include "ac2/internal/forms/check_offload_options.h"
#include "ac2/internal/forms/form_access.h"
#include "ac2/internal/libtorch/managed_tensors.h"
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
  if (budget != nullptr && !budget->has_ranks() &&
      (budget->has_no_number() || budget->costs() != internal::CostSource::kModelled)) {
    TORCH_WARN_ONCE(
        "A region gathers parameters for replays (gather_units, ZeRO-3) and has a memory budget that goes by times or "
        "by the memory that is left. Processes that drop different values gather different parameters, and may wait "
        "for each other for ever. Let the processes agree (",
        internal::spelled("whatever_fits(group)", "ac2.whatever_fits(group=group)"),
        "), give the region a number of bytes and modelled_costs, or no budget.");
  }
}

// How results leave the device: as the scope says, or else as the form for that does.
std::optional<OffloadOptions> offload_options_of(const ScopeOptions& options) {
  std::optional<OffloadOptions> offload = options.offload;
  for (const FormPtr& form : options.forms) {
    const OffloadOptions* of_form = internal::FormAccess::copied_with(*form);
    if (of_form == nullptr) {
      continue;
    }
    TORCH_CHECK(!offload || *of_form == OffloadOptions() || *of_form == *offload,
                "ScopeOptions::offload and forms::host_memory() were given different options. Give them once.");
    offload = offload ? offload : *of_form;
  }
  return offload;
}

Policy no_policy() {
  return Policy::constant(CheckpointPolicy::PREFER_SAVE).named("no policy");
}

ScopeOptions keeping_what_fits(ScopeOptions options) {
  if (!options.memory_budget.has_value()) {
    options.memory_budget = whatever_fits(options.modelled_costs);
  }
  return options;
}

}  // namespace

Policy internal::policy_for(const ScopeOptions& options) {
  return options.memory_budget.has_value() ? no_policy() : Policy("recompute_all");
}

PolicyScope::PolicyScope() : PolicyScope(ScopeOptions()) {}

PolicyScope::PolicyScope(Policy policy, ScopeOptions options) {
  const std::optional<MemoryBudget> budget = options.memory_budget.budget(options.modelled_costs);
  if (options.offload) {
    internal::check_offload_options(*options.offload);
  }
  internal::check_forms(options.forms, "ScopeOptions::forms");
  std::shared_ptr<internal::Budget> shared = budget_of(budget);
  if (options.gather_units || internal::gatherer_communicates()) {
    warn_of_choices_that_differ(shared);
  }
  state_ = internal::open_region(std::move(policy), {.verify = options.verify,
                                                     .timeline = options.timeline,
                                                     .budget = std::move(shared),
                                                     .log = nullptr,
                                                     .offload = offload_options_of(options),
                                                     .gather_units = std::move(options.gather_units),
                                                     .keep_for_next_backward = options.keep_for_next_backward,
                                                     .forms = options.forms});
}

PolicyScope::PolicyScope(ScopeOptions options) : PolicyScope(no_policy(), keeping_what_fits(std::move(options))) {}

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
  if (decision.form() != nullptr) {
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

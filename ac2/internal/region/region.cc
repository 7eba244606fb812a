#include "ac2/internal/region/region.h"

#include <ATen/SavedTensorHooks.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/macros/Macros.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <utility>

#include "ac2/internal/forms/form_access.h"
#include "ac2/internal/libtorch/graph_making.h"
#include "ac2/internal/libtorch/torch_compat.h"
#include "ac2/internal/libtorch/unrecorded.h"
#include "ac2/internal/libtorch/warn_in_op.h"
#include "ac2/internal/region/trace_access.h"

namespace ac2::internal {

namespace {

// To be called after every change of the region's scopes.
void tell_of_scopes(const Region& region) {
  const Tape::Lock tape(*region.tape);
  tape->storages().set_names_decide(region.policies.looks_at_names());
  for (const std::shared_ptr<RegionObserver>& observer : region.observers) {
    observer->scopes_changed(region.policies);
  }
}

void start_observers(const RegionOptions& options, Region& region) {
  for (const std::shared_ptr<RegionObserver>& observer : options.observers) {
    const bool is_there = std::any_of(region.observers.begin(), region.observers.end(),
                                      [&](const auto& other) { return other->kind() == observer->kind(); });
    if (!is_there) {
      observer->start(*region.tape);
      region.observers.push_back(observer);
    }
  }
}

void apply_budgets(Tape& tape, const RegionOptions& options) {
  for (const std::shared_ptr<Budget>& budget : {options.budget, options.plan_budget}) {
    if (budget && tape.budget() == nullptr) {
      tape.set_budget(budget);
    } else if (budget && tape.budget() != budget.get()) {
      const Tape::Lock locked(tape);
      locked->budget().limit(budget->limit());
    }
  }
}

void apply(const RegionOptions& options, Region& region) {
  Tape& tape = *region.tape;
  apply_budgets(tape, options);
  if (options.offload) {
    const Tape::Lock locked(tape);
    locked->offloading().set_options(*options.offload);
  }
  if (options.gather_units) {
    auto gather_units = std::make_shared<const GatherUnits>(options.gather_units);
    const Tape::Lock locked(tape);
    locked->exchange_gather_units(gather_units);
  }
  if (tape.budget() != nullptr && tape.budget()->has_ranks() && any_has_gatherer()) {
    const Tape::Lock locked(tape);
    locked->bytes().note_replays_communicate();
  }
  if (options.keep_for_next_backward) {
    tape.keep_for_next_backward();
  }
  if (options.is_inexact) {
    const Tape::Lock locked(tape);
    locked->kept().expect_inexact();
  }
  start_observers(options, region);
}

// Null if there is nothing to offer: no form, or no budget that could come to need one. Throws what forms throw.
std::shared_ptr<const OfferedForms> offer(const Forms& forms, Budget* budget) {
  if (forms.empty() || budget == nullptr) {
    return nullptr;
  }
  auto offered = std::make_shared<OfferedForms>();
  for (const FormPtr& form : forms) {
    if (FormAccess::copied_with(*form) != nullptr) {
      offered->host_memory = true;
    } else {
      offered->forms.push_back(form);
      offered->are_exact &= form->is_exact();
      offered->numbers.push_back(budget->number_of(form));
    }
  }
  return offered;
}

// Autograd asks for no hooks where they are off, so that ops are recorded and nothing of what is saved comes here.
C10_NOINLINE void warn_of_hooks_that_are_off(const std::string& why) {
  static constinit SaidOnce said;
  if (why.find("torch.func") == std::string::npos || !said.is_to_say()) {
    return;
  }
  warn_in_op(
      "A transform of torch.func that differentiates (grad, vjp, jacrev, hessian) runs inside an ac2 region, or the "
      "region was opened inside it. Such transforms turn the hooks for saved tensors off, so that all that autograd "
      "saves in them is held as without a region, whatever the policy says. Results are the same. Differentiate with "
      "torch.autograd.grad in place of the transform: it may be called inside a region, with create_graph=True too, "
      "and what it computes is recomputed as the policy says.");
}

}  // namespace

// Thread-local there as we are here, so that its place stays the same.
ThreadRegions::ThreadRegions() : hooks_(&at::SavedTensorDefaultHooks::get_tls_state()) {}

ThreadRegions::~ThreadRegions() {
  this_thread_->has_ended = true;
}

ThreadRegions& ThreadRegions::here() {
  return PerThread<ThreadRegions>::here();
}

std::shared_ptr<ScopeState> ThreadRegions::open(PolicyInstance policy, const RegionOptions& options) {
  remove_closed_elsewhere();
  within_node_.reset();  // a scope is opened between ops
  const int graph_task = torch::autograd::get_current_graph_task_id();
  auto scope = std::make_shared<ScopeState>();
  // A scope inside a backward is no part of the region around that backward.
  scope->outermost = regions_.empty() || regions_.back()->graph_task != graph_task;
  // Before anything has changed, because forms are the program's, and may throw.
  Budget* const outer = scope->outermost ? nullptr : regions_.back()->tape->budget();
  scope->offered = offer(options.forms, outer != nullptr            ? outer
                                        : options.budget != nullptr ? options.budget.get()
                                                                    : options.plan_budget.get());
  if (scope->outermost) {
    auto region = std::make_unique<Region>();
    region->tape = Tape::make();
    region->trace = TraceAccess::make(region->tape);
    region->graph_task = graph_task;
    Tape::Lock(*region->tape)->autograd_span().begin();
    regions_.push_back(std::move(region));
  }
  apply(options, *regions_.back());
  scope->region = regions_.back().get();
  scope->trace = scope->region->trace;
  scope->policy = scope->region->policies.push(std::move(policy));
  tell_of_scopes(*scope->region);
  scope->outer_hooks = hooks_->stack.size();
  scope->opened_by = this_thread_;
  scopes_.push_back(scope);
  if (scope->offered != nullptr) {
    offer_as_innermost_says(*scope->region);
  }
  regions_changed();
  return scope;
}

std::string ThreadRegions::close(const std::shared_ptr<ScopeState>& scope) {
  if (scope->opened_by != this_thread_) {
    scope->closed = true;
    scope->opened_by->has_scope_closed_elsewhere = true;
    return scope->opened_by->has_ended
               ? "A PolicyScope was closed after the thread that opened it had ended, and its region with it. Keep a "
                 "scope in a local variable."
               : "A PolicyScope was closed on another thread than the one that opened it. It stays in force there "
                 "until "
                 "that thread's next op. Keep a scope in a local variable.";
  }
  remove_closed_elsewhere();
  const bool in_order = !scopes_.empty() && scopes_.back() == scope;
  scope->closed = true;
  remove(*scope);
  return in_order
             ? ""
             : "PolicyScopes were closed out of order: one was closed before a scope opened inside it. Both are closed "
               "correctly, but the ops between were under the inner policy alone. Close scopes in the reverse order "
               "of their opening; local variables do.";
}

void ThreadRegions::remove(ScopeState& scope) {
  scopes_.erase(
      std::remove_if(scopes_.begin(), scopes_.end(), [&](const auto& other) { return other.get() == &scope; }),
      scopes_.end());
  Region* region = scope.region;
  region->policies.remove(scope.policy);
  // The forms go with the scope's end, also where the program keeps the scope.
  const std::shared_ptr<const OfferedForms> offered = std::exchange(scope.offered, nullptr);
  if (offered != nullptr) {
    offer_as_innermost_says(*region);
  }
  // Destroyed when no op can be recorded in it any more: policies are the program's, and their destructors may run ops.
  std::unique_ptr<Region> over;
  const bool last = std::none_of(scopes_.begin(), scopes_.end(), [&](const auto& s) { return s->region == region; });
  if (last) {
    Tape::Lock(*region->tape)->autograd_span().end();
    region->tape->close();
    if (OffloadForm* form = region->tape->offload_form()) {
      form->poll();
    }
    const auto it = std::find_if(regions_.begin(), regions_.end(), [&](const auto& r) { return r.get() == region; });
    over = std::move(*it);
    regions_.erase(it);
  } else {
    tell_of_scopes(*region);
  }
  regions_changed();
}

void ThreadRegions::offer_as_innermost_says(const Region& region) {
  const auto innermost = std::find_if(scopes_.rbegin(), scopes_.rend(), [&](const auto& scope) {
    return scope->region == &region && scope->offered != nullptr;
  });
  // The forms are the program's: they are destroyed without the lock.
  std::shared_ptr<const OfferedForms> forms = innermost == scopes_.rend() ? nullptr : (*innermost)->offered;
  const Tape::Lock locked(*region.tape);
  forms = locked->kept().exchange_offered(std::move(forms));
}

void ThreadRegions::remove_closed_elsewhere() {
  if (!this_thread_->has_scope_closed_elsewhere.exchange(false)) {
    return;
  }
  const std::vector<std::shared_ptr<ScopeState>> scopes = scopes_;
  for (const auto& scope : scopes) {
    if (scope->closed) {
      remove(*scope);
    }
  }
}

Region* ThreadRegions::saving() {
  Region* const region = recording();
  if (region == nullptr) {
    return nullptr;
  }
  // Tensors of traced code are packed when that code runs.
  const bool has_inner_hooks = !hooks_->stack.empty() && hooks_->stack.size() > scopes_.back()->outer_hooks;
  return hooks_->is_tracing || has_inner_hooks ? nullptr : region;
}

bool ThreadRegions::begins_a_graph() const {
  return regions_.empty() && disabled_ == 0 && !Unrecorded::here() && hooks_->stack.empty() && !hooks_->is_tracing &&
         torch::autograd::get_current_graph_task_id() == -1;
}

void ThreadRegions::include_key_again() {
  if (includes_key_ && !c10::impl::tls_is_dispatch_key_included(kRecordKey)) {
    c10::impl::tls_set_dispatch_key_included(kRecordKey, true);
    began_within_op();
  }
}

bool ThreadRegions::is_still_within_op() {
  if (at::sequence_number::peek() != *within_node_) {
    within_node_.reset();
  }
  return within_node_.has_value();
}

Region* ThreadRegions::innermost() {
  // Only a hint. The exchange in there, which pairs with the store of close(), makes the scopes' flags seen.
  if (this_thread_->has_scope_closed_elsewhere.load(std::memory_order_relaxed)) {
    remove_closed_elsewhere();
  }
  return Unrecorded::here() ? nullptr : innermost_;
}

Region* ThreadRegions::recording() {
  Region* region = innermost();
  if (region == nullptr) {
    return nullptr;
  }
  if (C10_UNLIKELY(hooks_->disabled_error_message.has_value())) {
    warn_of_hooks_that_are_off(*hooks_->disabled_error_message);
  }
  const int graph_task = torch::autograd::get_current_graph_task_id();
  return region->graph_task == graph_task || makes_graph(graph_task, at::GradMode::is_enabled()) ? region : nullptr;
}

void ThreadRegions::disable() {
  ++disabled_;
  regions_changed();
}

void ThreadRegions::enable() {
  --disabled_;
  regions_changed();
}

// A thread of the engine has the key as it was where backward was called, which may be in a region.
bool ThreadRegions::found_key_included() const {
  return includes_key_ ? found_key_included_
                       : torch::autograd::get_current_graph_task_id() == -1 &&
                             c10::impl::tls_is_dispatch_key_included(kRecordKey);
}

void ThreadRegions::regions_changed() {
  const bool include = disabled_ == 0 && !regions_.empty();
  innermost_ = include ? regions_.back().get() : nullptr;
  if (include && !includes_key_) {
    found_key_included_ = found_key_included();
  }
  if (include || includes_key_) {
    c10::impl::tls_set_dispatch_key_included(kRecordKey, include || found_key_included_);
  }
  includes_key_ = include;
  const bool hold =
      include && may_hold_arguments_ && (innermost_->policies.may_drop_tensors() || FormAccess::any_may_drop_tensors());
  if (hold != includes_hold_key_) {
    c10::impl::tls_set_dispatch_key_included(kHoldKey, hold);
    includes_hold_key_ = hold;
  }
}

}  // namespace ac2::internal

#include "ac2/internal/region/region.h"

#include <ATen/SavedTensorHooks.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>

#include "ac2/internal/libtorch/torch_compat.h"
#include "ac2/internal/libtorch/unrecorded.h"
#include "ac2/internal/region/compiler_tracing.h"
#include "ac2/internal/region/trace_access.h"

namespace ac2::internal {

namespace {

void tell_timeline(const Region& region) {
  if (region.timeline == nullptr) {
    return;
  }
  const Tape::Lock lock(*region.tape);
  for (const PolicyStack::Entry& entry : region.policies.entries()) {
    region.timeline->add_scope(entry.id, entry.depth, entry.policy.name);
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
  if (options.verify && region.verifier == nullptr) {
    region.verifier = Verifier::start(tape);
  }
  apply_budgets(tape, options);
  if (options.offload) {
    const Tape::Lock locked(tape);
    locked->offloading().set_options(*options.offload);
  }
  if (options.log) {
    const Tape::Lock locked(tape);
    locked->observers().add(options.log);
  }
  if (options.timeline && region.timeline == nullptr) {
    region.timeline = Timeline::start(tape);
  }
}

}  // namespace

// Thread-local there as we are here, so that its place stays the same.
ThreadRegions::ThreadRegions() : hooks_(&at::SavedTensorDefaultHooks::get_tls_state()) {}

ThreadRegions& ThreadRegions::here() {
  static thread_local ThreadRegions regions;
  return regions;
}

std::shared_ptr<ScopeState> ThreadRegions::open(Policy::Instance policy, const RegionOptions& options) {
  remove_closed_elsewhere();
  const int graph_task = torch::autograd::get_current_graph_task_id();
  auto scope = std::make_shared<ScopeState>();
  // A scope inside a backward is no part of the region around that backward.
  scope->outermost = regions_.empty() || regions_.back()->graph_task != graph_task;
  if (scope->outermost) {
    auto region = std::make_unique<Region>();
    region->tape = Tape::make();
    region->trace = TraceAccess::make(region->tape);
    region->graph_task = graph_task;
    Tape::Lock(*region->tape)->autograd_span().begin();
    regions_.push_back(std::move(region));
  }
  apply(options, *regions_.back());
  scope->thread = std::this_thread::get_id();
  scope->region = regions_.back().get();
  scope->trace = scope->region->trace;
  scope->policy = scope->region->policies.push(std::move(policy));
  tell_timeline(*scope->region);
  scope->outer_hooks = hooks_->stack.size();
  scope->closed_elsewhere = closed_elsewhere_;
  scopes_.push_back(scope);
  update_dispatch_key();
  return scope;
}

std::string ThreadRegions::close(const std::shared_ptr<ScopeState>& scope) {
  if (scope->thread != std::this_thread::get_id()) {
    scope->closed = true;
    *scope->closed_elsewhere = true;
    return "A PolicyScope was closed on another thread than the one that opened it. It stays in force there until that "
           "thread's next op. Keep a scope in a local variable.";
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
  const bool last = std::none_of(scopes_.begin(), scopes_.end(), [&](const auto& s) { return s->region == region; });
  if (last) {
    if (scope.thread == std::this_thread::get_id()) {
      Tape::Lock(*region->tape)->autograd_span().end();
    }
    region->tape->close();
    if (OffloadForm* form = region->tape->offload_form()) {
      form->poll();
    }
    regions_.erase(std::remove_if(regions_.begin(), regions_.end(), [&](const auto& r) { return r.get() == region; }),
                   regions_.end());
  }
  update_dispatch_key();
}

void ThreadRegions::remove_closed_elsewhere() {
  if (!closed_elsewhere_->exchange(false)) {
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

Region* ThreadRegions::innermost() {
  // Only a hint. The exchange in there, which pairs with the store of close(), makes the scopes' flags seen.
  if (closed_elsewhere_->load(std::memory_order_relaxed)) {
    remove_closed_elsewhere();
  }
  const bool is_off = disabled_ > 0 || regions_.empty() || Unrecorded::here() || CompilerTracing::here();
  return is_off ? nullptr : regions_.back().get();
}

Region* ThreadRegions::recording() {
  Region* region = innermost();
  if (region == nullptr || region->graph_task != torch::autograd::get_current_graph_task_id()) {
    return nullptr;
  }
  return region;
}

void ThreadRegions::disable() {
  ++disabled_;
  update_dispatch_key();
}

void ThreadRegions::enable() {
  --disabled_;
  update_dispatch_key();
}

// A thread of the engine has the key as it was where backward was called, which may be in a region.
bool ThreadRegions::found_key_included() const {
  return includes_key_ ? found_key_included_
                       : torch::autograd::get_current_graph_task_id() == -1 &&
                             c10::impl::tls_is_dispatch_key_included(kRecordKey);
}

void ThreadRegions::update_dispatch_key() {
  const bool include = disabled_ == 0 && !regions_.empty();
  if (include && !includes_key_) {
    found_key_included_ = found_key_included();
  }
  if (include || includes_key_) {
    c10::impl::tls_set_dispatch_key_included(kRecordKey, include || found_key_included_);
  }
  includes_key_ = include;
}

}  // namespace ac2::internal

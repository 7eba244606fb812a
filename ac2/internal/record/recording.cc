#include "ac2/internal/record/recording.h"

#include "ac2/internal/libtorch/for_each_tensor.h"
#include "ac2/internal/libtorch/stream_order.h"
#include "ac2/internal/operators/cost_model.h"
#include "ac2/internal/record/node_builder.h"
#include "ac2/internal/region/op_context_factory.h"
#include "ac2/internal/tape/budget.h"
#include "ac2/internal/tape/offloader.h"
#include "ac2/internal/tape/packing.h"
#include "ac2/internal/tape/step_log.h"

namespace ac2::internal {

namespace {

// On the meta device nothing is computed, and on one with streams the op has only been queued when it returns.
bool cannot_be_timed(c10::ArrayRef<c10::IValue> results) {
  bool any = false;
  for_each_tensor(results, [&](const at::Tensor& tensor) {
    any |= tensor.defined() && (tensor.is_meta() || is_asynchronous(tensor.device()));
  });
  return any;
}

bool has_result_tensors(c10::ArrayRef<c10::IValue> results) {
  bool any = false;
  for_each_tensor(results, [&](const at::Tensor& tensor) { any |= tensor.defined(); });
  return any;
}

}  // namespace

Recording::Recording(Region& region, const OpFacts& facts, c10::DispatchKeySet keys,
                     const c10::impl::PODLocalDispatchKeySet& tls_keys, int64_t index)
    : tape_(region.tape),
      region_(region),
      facts_(facts),
      keys_(keys),
      tls_keys_(tls_keys),
      index_(index),
      budget_(tape_->budget()),
      names_decide_(region.policies.looks_at_names()) {
  if (const ResolvedDecision* resolved = region.policies.known(facts)) {
    known_ = *resolved;
  }
  const StepLog* const log = tape_->step_log();
  if (budget_ != nullptr || log != nullptr) {
    modelled_ = (budget_ != nullptr && budget_->costs() == CostSource::kModelled) ||
                (log != nullptr && log->costs() == CostSource::kModelled);
    timed_ = !modelled_;
  }
}

bool Recording::may_recompute() const {
  return !known_ || !saves(known_->decision, budget_ != nullptr);
}

double Recording::cost_of(const Call& call) const {
  if (modelled_ || cannot_be_timed(call.results)) {
    return modelled_cost(facts_, call.arguments, call.results);
  }
  return static_cast<double>(elapsed_);
}

bool Recording::add_node(const Call& call) {
  if (call.writes == nullptr && !has_result_tensors(call.results)) {
    return false;
  }
  if (!known_) {
    known_ = region_.policies.decide(facts_, OpContextFactory::make(facts_.op, call.arguments, call.results, index_));
  }
  const Tape::Lock lock(*tape_);
  tape_->names_decide = names_decide_;
  build_node(*tape_,
             {.facts = facts_,
              .keys = keys_,
              .tls_keys = tls_keys_,
              .arguments = call.arguments,
              .results = call.results,
              .writes = call.writes,
              .random_state = call.random_state,
              .index = index_,
              .cost = modelled_ || timed_ ? cost_of(call) : 0},
             *known_);
  if (tape_->has_pending_packs()) {
    packs_ = tape_->take_pending_packs();
  }
  return true;
}

void Recording::settle() {
  if (!packs_.empty()) {
    pack_values(*tape_, packs_);
  }
  if (Offloader* offloader = tape_->offloader()) {
    offloader->poll();
  }
  if (budget_ != nullptr) {
    budget_->make_room(0, [&] { return facts_.name; });
  }
}

}  // namespace ac2::internal

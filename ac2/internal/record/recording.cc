#include "ac2/internal/record/recording.h"

#include <c10/macros/Macros.h>
#include <c10/util/SmallVector.h>

#include <cstddef>

#include "ac2/internal/budget/budget.h"
#include "ac2/internal/libtorch/for_each_tensor.h"
#include "ac2/internal/libtorch/stream_order.h"
#include "ac2/internal/libtorch/tensor_bytes.h"
#include "ac2/internal/libtorch/torch_compat.h"
#include "ac2/internal/operators/cost_model.h"
#include "ac2/internal/record/node_builder.h"
#include "ac2/internal/region/op_context_factory.h"
#include "ac2/internal/replay/packing.h"

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

using ImplList = c10::SmallVector<const c10::TensorImpl*, 1>;

C10_NOINLINE void find_idle_in_python(c10::ArrayRef<c10::IValue> results, ImplList& found) {
  for_each_tensor(results, [&](const at::Tensor& result) {
    if (result.use_count() > 1 && is_used_by_idle_python_object(*result.unsafeGetTensorImpl())) {
      found.push_back(result.unsafeGetTensorImpl());
    }
  });
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
  if (budget_ != nullptr || !tape_->observers().empty()) {
    find_how_costs_are_known();
  }
}

void Recording::find_how_costs_are_known() {
  bool wanted = budget_ != nullptr;
  modelled_ = budget_ != nullptr && budget_->costs() == CostSource::kModelled;
  tape_->observers().tell([&](const Observer& observer) {
    const std::optional<CostSource> costs = observer.costs();
    wanted |= costs.has_value();
    modelled_ |= costs == CostSource::kModelled;
  });
  timed_ = wanted && !modelled_;
}

bool Recording::may_recompute() const {
  return !known_ || !saves(known_->decision, budget_ != nullptr);
}

OpEnvironment::Reach Recording::reach_of_pointwise(c10::ArrayRef<c10::IValue> results) {
  int64_t numel = 0;
  for_each_tensor(results, [&](const at::Tensor& tensor) { numel += tensor.defined() ? tensor.numel() : 0; });
  // LibTorch gives no elementwise op of fewer numbers to several threads (IMPLEMENT_VML_KERNEL in
  // aten/src/ATen/native/cpu/UnaryOpsKernel.cpp has the smallest share; most have 32,768).
  constexpr int64_t kOneThread = 2048;
  return numel < kOneThread ? OpEnvironment::Reach::kDtype : OpEnvironment::Reach::kSwitches;
}

double Recording::cost_of(const Call& call, c10::ArrayRef<c10::IValue> results) const {
  if (modelled_ || cannot_be_timed(results)) {
    return modelled_cost(facts_, call.arguments, results);
  }
  return static_cast<double>(elapsed_);
}

C10_ALWAYS_INLINE void Recording::take_packs(LockedTape& tape) {
  if (tape.bytes().has_pending_packs()) {
    packs_ = tape.bytes().take_pending_packs();
  }
}

bool Recording::add_node(const Call& call, c10::ArrayRef<c10::IValue> results) {
  bool any = call.writes != nullptr, any_shared = false;
  for_each_tensor(results, [&](const at::Tensor& result) {
    const size_t uses = result.use_count();  // 0 if it is undefined
    any |= uses > 0;
    any_shared |= uses > 1;
  });
  if (!any) {
    return false;
  }
  if (!known_) {
    known_ = region_.policies.decide(facts_, OpContextFactory::make(facts_.op, call.arguments, results, index_));
    any_shared = true;  // a policy that is written in Python may have given them objects there
  }
  if (C10_UNLIKELY(facts_.communicates) && known_->decision.policy() != CheckpointPolicy::MUST_RECOMPUTE) {
    // In no other form: what the op returns may still be on its way.
    known_ = ResolvedDecision{.decision = CheckpointPolicy::MUST_SAVE, .decided_by = known_->decided_by};
  }
  ImplList idle_in_python;
  if (any_shared) {
    find_idle_in_python(results, idle_in_python);
  }
  const double cost = modelled_ || timed_ ? cost_of(call, results) : 0;
  environment_.dispatch_state = tls_keys_;
  const RecordedCall recorded{.facts = facts_,
                              .keys = keys_,
                              .environment = environment_,
                              .arguments = call.arguments,
                              .results = results,
                              .writes = call.writes,
                              .random_state = call.random_state,
                              .foreign_reads = nullptr,
                              .idle_in_python = idle_in_python,
                              .index = index_,
                              .cost = cost};
  {
    const Tape::Lock tape(*tape_);
    tape->storages().set_names_decide(names_decide_);
    if (C10_LIKELY(build_node(*tape, recorded, *known_))) {
      take_packs(*tape);
      return true;
    }
  }
  add_node_after_foreign_reads(recorded);
  return true;
}

C10_NOINLINE void Recording::add_node_after_foreign_reads(RecordedCall call) {
  // An allocator that is asked for memory may drop what the caller of the op has lent.
  const c10::SmallVector<c10::IValue, 8> owned(call.arguments.begin(), call.arguments.end());
  const ForeignReads reads(*tape_, owned, bytes_of(call.results));
  call.arguments = owned;
  call.foreign_reads = &reads;
  const Tape::Lock tape(*tape_);
  build_node(*tape, call, *known_);
  take_packs(*tape);
}

void Recording::settle() {
  if (!packs_.empty()) {
    pack_values(*tape_, packs_);
  }
  if (OffloadForm* form = tape_->offload_form()) {
    form->poll();
  }
  if (budget_ != nullptr) {
    budget_->make_room(0, [&] { return facts_.name; });
  }
}

}  // namespace ac2::internal

#include "ac2/internal/record/recording.h"

#include <c10/macros/Macros.h>
#include <c10/util/SmallVector.h>

#include <cstddef>

#include "ac2/internal/budget/budget.h"
#include "ac2/internal/budget/peak_bound.h"
#include "ac2/internal/libtorch/for_each_tensor.h"
#include "ac2/internal/libtorch/spelling.h"
#include "ac2/internal/libtorch/stream_order.h"
#include "ac2/internal/libtorch/tensor_bytes.h"
#include "ac2/internal/libtorch/torch_compat.h"
#include "ac2/internal/libtorch/warn_in_op.h"
#include "ac2/internal/operators/cost_model.h"
#include "ac2/internal/region/op_context_factory.h"

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

// A budget for a peak bounds the memory of the devices on which its regions compute.
C10_NOINLINE void tell_of_devices(PeakBound& peak, c10::ArrayRef<c10::IValue> results) {
  for_each_tensor(results, [&](const at::Tensor& tensor) {
    if (tensor.defined()) {
      peak.met_device(tensor.device());
    }
  });
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
                     const c10::impl::PODLocalDispatchKeySet& tls_keys, int64_t index,
                     c10::ArrayRef<c10::IValue> arguments)
    : tape_(region.tape),
      region_(region),
      tls_keys_(tls_keys),
      budget_(tape_->budget()),
      call_(facts, keys, index, arguments) {
  const PolicyDecision* decision = nullptr;
  if (const ResolvedDecision* resolved = region.policies.known(facts)) {
    decision = &known_.emplace(*resolved).decision;
  }
  call_.outlook = Outlook::of(decision, region.policies.looks_at_names(), budget_ != nullptr);
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

C10_ALWAYS_INLINE Recording::ResultsSeen Recording::look_at_results() const {
  ResultsSeen seen;
  const bool counts = call_.facts.is_pointwise;  // a tensor of another op's may have no size that is a number
  const auto look = [&seen, counts](const at::Tensor& result) {
    const size_t uses = result.use_count();  // 0 if it is undefined
    if (uses > 0) {
      seen.any = true;
      seen.any_shared |= uses > 1;
      if (counts) {
        seen.numel += result.numel();
      }
    }
  };
  if (C10_LIKELY(call_.results.size() == 1 && call_.results[0].isTensor())) {
    look(call_.results[0].toTensor());
  } else {
    for_each_tensor(call_.results, look);
  }
  return seen;
}

C10_ALWAYS_INLINE OpEnvironment::Reach Recording::reach_of_pointwise(int64_t numel) {
  // LibTorch gives no elementwise op of fewer numbers to several threads (IMPLEMENT_VML_KERNEL in
  // aten/src/ATen/native/cpu/UnaryOpsKernel.cpp has the smallest share; most have 32,768).
  constexpr int64_t kOneThread = 2048;
  return numel < kOneThread ? OpEnvironment::Reach::kDtype : OpEnvironment::Reach::kSwitches;
}

double Recording::cost() const {
  if (modelled_ || cannot_be_timed(call_.results)) {
    return modelled_cost(call_.facts, call_.arguments, call_.results);
  }
  return static_cast<double>(elapsed_);
}

// Policies that see the call decide, and the outlook is corrected.
C10_NOINLINE void Recording::decide_after_op() {
  if (!known_) {
    known_ = region_.policies.decide(
        call_.facts, OpContextFactory::make(call_.facts.op, call_.arguments, call_.results, call_.index));
  }
  if (C10_UNLIKELY(call_.facts.communicates) && known_->decision.policy() != CheckpointPolicy::MUST_RECOMPUTE) {
    // Saved in no other form, because the results of the op may still be on their way.
    known_ = ResolvedDecision{.decision = CheckpointPolicy::MUST_SAVE, .scope_id = known_->scope_id};
  }
  if (C10_UNLIKELY(call_.facts.communicates) && tape_->budget() != nullptr && !tape_->budget()->has_ranks() &&
      known_->decision.policy() == CheckpointPolicy::MUST_RECOMPUTE) {
    static constinit SaidOnce said;
    if (said.is_to_say()) {
      warn_in_op(
          c10::str("A policy lets ", c10::toString(call_.facts.op.operator_name()),
                   ", which communicates with other processes, be run again in backward, and the region has a memory "
                   "budget. Processes that drop different values run it again at different times, or not as often, "
                   "and may wait for each other for ever. Let the processes agree (",
                   spelled("a budget with a RankGroup", "ac2.whatever_fits(group=group)"),
                   "), save what it returns, or give the region no budget."));
    }
  }
  call_.outlook = Outlook::of(&known_->decision, call_.outlook.by_name, tape_->budget() != nullptr);
}

bool Recording::add_node() {
  const ResultsSeen seen = look_at_results();
  if (!seen.any && call_.writes == nullptr) {
    return false;
  }
  // How much such an op looks at depends on how large its results are. The op changes nothing itself.
  if (call_.facts.is_pointwise) {
    call_.environment = OpEnvironment::here(reach_of_pointwise(seen.numel));
  }
  call_.environment.dispatch_state = tls_keys_;
  // A policy that is written in Python may have given them objects there.
  const bool may_be_in_python = seen.any_shared || !known_;
  // The op may have opened a scope with a budget.
  if (C10_UNLIKELY(!known_ || call_.facts.communicates || tape_->budget() != budget_)) {
    decide_after_op();
  }
  ImplList idle_in_python;
  if (may_be_in_python) {
    find_idle_in_python(call_.results, idle_in_python);
    call_.idle_in_python = idle_in_python;
  }
  if (C10_UNLIKELY(budget_ != nullptr && budget_->peak())) {
    tell_of_devices(*budget_->peak(), call_.results);
  }
  if (modelled_ || timed_) {
    call_.cost = cost();
  }
  {
    const Tape::Lock tape(*tape_);
    if (C10_LIKELY(build_node(*tape, call_, *known_))) {
      pending_.take(*tape);
      return true;
    }
  }
  add_node_after_foreign_reads();
  return true;
}

C10_NOINLINE void Recording::add_node_after_foreign_reads() {
  // An allocator that is asked for memory may drop what the caller of the op has lent.
  const c10::SmallVector<c10::IValue, 8> owned(call_.arguments.begin(), call_.arguments.end());
  const ForeignReads reads(*tape_, owned, bytes_of(call_.results));
  RecordedCall call = call_;
  call.arguments = owned;
  call.foreign_reads = &reads;
  const Tape::Lock tape(*tape_);
  build_node(*tape, call, *known_);
  pending_.take(*tape);
}

}  // namespace ac2::internal

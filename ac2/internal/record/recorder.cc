#include "ac2/internal/record/recorder.h"

#include <c10/core/InferenceMode.h>

#include <memory>
#include <optional>
#include <utility>

#include "ac2/internal/libtorch/for_each_tensor.h"
#include "ac2/internal/operators/random_replay.h"
#include "ac2/internal/record/overwrite.h"
#include "ac2/internal/record/recording.h"
#include "ac2/internal/tape/budget.h"
#include "ac2/internal/tape/timeline.h"
#include "ac2/internal/tape/verifier.h"

namespace ac2::internal {

namespace {

c10::ArrayRef<c10::IValue> top(const torch::jit::Stack& stack, size_t count) {
  return c10::ArrayRef<c10::IValue>(stack).slice(stack.size() - count);
}

// Nothing to record, but ADInplaceOrView may be about to count a new version of bytes that stay as they are. Told to
// the tape after the op, for it may throw.
void change_metadata(Tape& tape, const OpFacts& facts, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  c10::SmallVector<at::Tensor, 1> tensors;
  if (facts.bumps_version_only && !c10::InferenceMode::is_enabled()) {
    for_each_tensor(top(*stack, facts.num_arguments), [&](const at::Tensor& tensor) { tensors.push_back(tensor); });
  }
  facts.op.redispatchBoxed(keys, stack);
  if (!tensors.empty()) {
    const Tape::Lock lock(tape);
    for (const at::Tensor& tensor : tensors) {
      tape.expect_new_version(tensor);
    }
  }
}

void leave_results(TimedCall& call, c10::ArrayRef<c10::IValue> results, c10::ArrayRef<Overwrites::Target> targets) {
  call.leaves(results);
  for (const Overwrites::Target& target : targets) {
    call.leaves(target.tensor);
  }
}

}  // namespace

void run_unrecorded(Region& region, const OpFacts& facts, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  if (!facts.written.empty() && !facts.writes_metadata_only) {
    const Overwrites writes(*region.tape, facts, top(*stack, facts.num_arguments), {.in_place = true});
    facts.op.redispatchBoxed(keys, stack);
    return;
  }
  facts.op.redispatchBoxed(keys, stack);
}

// Once more, if memory ran out, but not where half of a write or of the draws may have happened.
void run_op(const OpFacts& facts, c10::DispatchKeySet keys, c10::ArrayRef<c10::IValue> arguments, Budget* budget,
            torch::jit::Stack* stack) {
  if (facts.draws || !facts.written.empty()) {
    facts.op.redispatchBoxed(keys, stack);
    return;
  }
  const size_t below = stack->size() - facts.num_arguments;
  bool again = false;
  call_with_room(budget, [&] {
    if (std::exchange(again, true)) {
      stack->resize(below);
      stack->insert(stack->end(), arguments.begin(), arguments.end());
    }
    facts.op.redispatchBoxed(keys, stack);
  });
}

void record_call(Region& region, const OpFacts& facts, c10::DispatchKeySet keys,
                 const c10::impl::PODLocalDispatchKeySet& tls_keys, torch::jit::Stack* stack) {
  const std::shared_ptr<Tape> tape = region.tape;  // as Recording's
  const int64_t index = tape->next_op();
  std::optional<TimedCall> logged;
  if (tape->timeline() != nullptr) {
    logged.emplace(*tape, facts, index);
  }
  if (facts.is_view || facts.writes_metadata_only) {
    change_metadata(*tape, facts, keys, stack);
    return;
  }
  if (facts.never_recompute) {
    run_unrecorded(region, facts, keys, stack);
    if (logged) {
      logged->ran();
      logged->leaves(top(*stack, facts.num_returns));
    }
    return;
  }
  const c10::ArrayRef<c10::IValue> on_stack = top(*stack, facts.num_arguments);
  const c10::SmallVector<c10::IValue, 8> arguments(on_stack.begin(), on_stack.end());
  if (logged) {
    logged->takes(arguments);
  }
  Recording recording(region, facts, keys, tls_keys, index);
  std::optional<VerifiedCall> verified;
  if (tape->verifier() != nullptr) {
    verified.emplace(*tape, facts, arguments, index);
  }
  std::optional<Overwrites> writes;
  if (!facts.written.empty()) {
    writes.emplace(*tape, facts, arguments,
                   Overwrites::Fate{.recompute = recording.may_recompute() && facts.has_fresh_results,
                                    .by_name = recording.names_decide(),
                                    .in_place = recording.saves_in_place(),
                                    .offload = recording.offloads()});
  }
  RandomState random_state;
  recording.begins();
  if (facts.draws && (recording.may_recompute() || recording.names_decide())) {
    const RecordedDraw draw(facts, stack->data() + (stack->size() - facts.num_arguments));
    random_state = draw.before();
    facts.op.redispatchBoxed(keys, stack);
  } else {
    run_op(facts, keys, arguments, recording.budget(), stack);
  }
  recording.ran();
  if (logged) {
    logged->ran();
  }
  if (verified) {
    verified->check_arguments();
  }
  const c10::ArrayRef<c10::IValue> results = top(*stack, facts.num_returns);
  if (!recording.add_node({.arguments = arguments,
                           .results = results,
                           .writes = writes ? &*writes : nullptr,
                           .random_state = std::move(random_state)})) {
    return;
  }
  if (logged) {
    leave_results(*logged, results, writes ? writes->targets() : c10::ArrayRef<Overwrites::Target>());
  }
  if (verified) {
    verified->note_results(results);
  }
  recording.settle();
}

}  // namespace ac2::internal

#include "ac2/internal/record/record_call.h"

#include <c10/core/InferenceMode.h>
#include <c10/macros/Macros.h>

#include <memory>
#include <optional>

#include "ac2/internal/budget/budget.h"
#include "ac2/internal/budget/call_with_room.h"
#include "ac2/internal/graph/seen_writes.h"
#include "ac2/internal/libtorch/for_each_tensor.h"
#include "ac2/internal/libtorch/random_state.h"
#include "ac2/internal/operators/draw_watch.h"
#include "ac2/internal/operators/op_tables.h"
#include "ac2/internal/operators/random_replay.h"
#include "ac2/internal/record/left_storage.h"
#include "ac2/internal/record/overwrite.h"
#include "ac2/internal/record/recording.h"

namespace ac2::internal {

namespace {

c10::ArrayRef<c10::IValue> top(const torch::jit::Stack& stack, size_t count) {
  return c10::ArrayRef<c10::IValue>(stack).slice(stack.size() - count);
}

// The state that a loop carries over from one round to the next is often detached there.
void note_detached(Tape& tape, const at::Tensor& tensor) {
  const Tape::Lock locked(tape);
  if (Value* value = locked->asks_for_gradients() ? locked->storages().find(tensor) : nullptr) {
    locked->set_without_gradient(value);
  }
}

C10_NOINLINE void note_departure(Tape& tape, c10::ArrayRef<c10::IValue> results) {
  const Tape::Lock locked(tape);
  for_each_tensor(results, [&](const at::Tensor& tensor) {
    if (tensor.defined()) {
      locked->storages().is_coming(tensor);
    }
  });
}

// The results of a wait are complete. Gloo writes what a collective has returned late, on another thread or in the
// wait, and counts up the version of the very tensor that was returned.
C10_NOINLINE void note_arrival(Tape& tape, c10::ArrayRef<c10::IValue> results) {
  const Tape::Lock locked(tape);
  for_each_tensor(results, [&](const at::Tensor& tensor) {
    if (tensor.defined()) {
      locked->storages().has_come(tensor);
    }
  });
}

// Called after an op that is not recorded: the program may have let go of values that only the region holds now.
void stay_within_budget(Tape& tape, const OpFacts& facts) {
  if (Budget* budget = tape.budget()) {
    budget->make_room(0, [&] { return facts.name; });
  }
}

// Nothing to record, but ADInplaceOrView may be about to count a new version of bytes that stay as they are. Noted
// after the op, for it may throw.
void change_metadata(Tape& tape, const OpFacts& facts, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  if (facts.detaches) {
    note_detached(tape, stack->back().toTensor());
  }
  c10::SmallVector<SeenWrites::Write, 1> writes;
  c10::SmallVector<LeftStorage, 1> left;
  if (facts.bumps_version_only && !c10::InferenceMode::is_enabled()) {
    const c10::ArrayRef<c10::IValue> arguments = top(*stack, facts.num_arguments);
    for (const uint16_t i : facts.written) {
      for_each_tensor(arguments.slice(i, 1), [&](const at::Tensor& tensor) {
        writes.emplace_back(tensor, nullptr, facts.name.c_str());
        left.emplace_back(tensor);
      });
    }
  }
  facts.op.redispatchBoxed(keys, stack);
  for (const SeenWrites::Write& write : writes) {
    seen_writes().note(write);
  }
  for (const LeftStorage& storage : left) {
    storage.stop_watching(tape);
  }
}

// Once more, if memory ran out, but not where half of a write or of the draws may have happened, or something was sent.
// `watch` is null if the op draws nothing.
void run_op(const OpFacts& facts, c10::DispatchKeySet keys, c10::ArrayRef<c10::IValue> arguments, Budget* budget,
            const DrawWatch* watch, torch::jit::Stack* stack) {
  if (facts.draws || facts.communicates || !facts.written.empty()) {
    facts.op.redispatchBoxed(keys, stack);
    return;
  }
  const size_t below = stack->size() - facts.num_arguments;
  const auto run = [&] { facts.op.redispatchBoxed(keys, stack); };
  const auto run_again = [&] {
    if (watch != nullptr) {
      watch->put_back();
    }
    stack->resize(below);
    stack->insert(stack->end(), arguments.begin(), arguments.end());
    run();
  };
  call_with_room(
      budget, run, [] {}, run_again);
}

// Runs the op. Returns null if the op has not drawn, and what it drew from otherwise: empty if that is not known, or
// `keeps_states` is false.
std::optional<Draws> run_and_watch_draws(Region& region, const OpFacts& facts, c10::DispatchKeySet keys,
                                         c10::ArrayRef<c10::IValue> arguments, Budget* budget, bool keeps_states,
                                         torch::jit::Stack* stack) {
  if (facts.is_aten && facts.draws && keeps_states) {
    const DrawInForward draw(facts, stack->data() + (stack->size() - facts.num_arguments));
    facts.op.redispatchBoxed(keys, stack);
    return draw.draws();
  }
  if (facts.is_aten || facts.communicates) {
    run_op(facts, keys, arguments, budget, /*watch=*/nullptr, stack);
    return facts.draws ? std::optional(Draws()) : std::nullopt;
  }
  const DrawWatch watch(facts, arguments, region.recent_states);
  run_op(facts, keys, arguments, budget, &watch, stack);
  std::optional<Draws> draws = watch.draws();
  if (draws && !keeps_states) {
    draws->clear();
  }
  return draws;
}

// The results of a collective are saved as they are. A collective is recorded only if the user has said, or may yet
// say, that its results are to be computed again all the same.
bool may_be_repeated(Region& region, const OpFacts& facts) {
  const ResolvedDecision* known = region.policies.known(facts);
  return known == nullptr || known->decision.policy() == CheckpointPolicy::MUST_RECOMPUTE;
}

}  // namespace

void run_unrecorded(Region& region, const OpFacts& facts, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  if (!facts.written.empty() && !facts.writes_metadata_only) {
    const Overwrites writes(*region.tape, facts, top(*stack, facts.num_arguments),
                            {.result = {.decided = Decided::kSave}, .in_place = true});
    facts.op.redispatchBoxed(keys, stack);
    writes.note_versions();
    return;
  }
  facts.op.redispatchBoxed(keys, stack);
}

void record_call(Region& region, const OpFacts& facts, c10::DispatchKeySet keys,
                 const c10::impl::PODLocalDispatchKeySet& tls_keys, torch::jit::Stack* stack) {
  const std::shared_ptr<Tape> tape = region.tape;  // as Recording's
  const int64_t index = tape->next_op();
  CallWatch watch(*tape, facts, index);
  if (facts.is_view || facts.writes_metadata_only) {
    change_metadata(*tape, facts, keys, stack);
    stay_within_budget(*tape, facts);
    return;
  }
  if (facts.never_recompute || (C10_UNLIKELY(facts.communicates) && !may_be_repeated(region, facts))) {
    run_unrecorded(region, facts, keys, stack);
    if (C10_UNLIKELY(facts.communicates)) {
      const c10::ArrayRef<c10::IValue> results = top(*stack, facts.num_returns);
      if (facts.returns_early) {
        note_departure(*tape, results);
      } else if (waits_for_collective(facts.op.schema().name())) {
        note_arrival(*tape, results);
      }
    }
    watch.ran();
    watch.recorded(top(*stack, facts.num_returns), nullptr);
    stay_within_budget(*tape, facts);
    return;
  }
  const c10::ArrayRef<c10::IValue> on_stack = top(*stack, facts.num_arguments);
  const c10::SmallVector<c10::IValue, 8> arguments(on_stack.begin(), on_stack.end());
  Recording recording(region, facts, keys, tls_keys, index, arguments);
  if (!facts.communicates) {
    watch.takes(arguments);
  }
  std::optional<Overwrites> writes;
  if (!facts.written.empty()) {
    recording.set_writes(&writes.emplace(*tape, facts, arguments, recording.outlook()));
  }
  std::optional<Draws> draws;
  recording.run(&watch, [&] {
    if (C10_UNLIKELY(facts.draws || !facts.is_aten)) {
      const bool keeps_states = recording.outlook().may_recompute() || recording.outlook().by_name;
      draws = run_and_watch_draws(region, facts, keys, arguments, recording.budget(), keeps_states, stack);
      recording.set_draws(draws ? &*draws : nullptr);
    } else {
      run_op(facts, keys, arguments, recording.budget(), /*watch=*/nullptr, stack);
    }
    return top(*stack, facts.num_returns);
  });
  if (C10_UNLIKELY(facts.returns_early)) {
    note_departure(*tape, top(*stack, facts.num_returns));
  }
}

}  // namespace ac2::internal

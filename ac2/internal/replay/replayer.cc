#include "ac2/internal/replay/replayer.h"

#include <c10/core/DeviceGuard.h>
#include <c10/macros/Macros.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "ac2/internal/libtorch/storage_copy.h"
#include "ac2/internal/libtorch/stream_order.h"
#include "ac2/internal/replay/budget_pins.h"
#include "ac2/internal/replay/gather_missing.h"
#include "ac2/internal/replay/node_replay.h"
#include "ac2/internal/replay/packing.h"
#include "ac2/internal/replay/sparing_replay.h"
#include "ac2/internal/replay/value_tensor.h"

namespace ac2::internal {

namespace {

using Values = c10::SmallVector<Value*, 8>;

// The inputs that are not at hand. Most nodes have none.
void find_missing_inputs(const Node& node, Values& missing) {
  missing.clear();
  for (const NodeInput& input : node.inputs) {
    if (input.value != nullptr && !input.value->is_at_hand()) {
      missing.push_back(input.value);
    }
  }
}

// A value without bytes. Once its inputs are being gathered under a budget, `inputs` pins those that are there already.
struct Missing {
  Value* value;
  std::optional<BudgetPins> inputs;
};

// The next step for a missing value.
struct Step {
  enum class Kind : uint8_t { kNothing, kUnpack, kGatherInputs, kReplay };
  Kind kind = Kind::kNothing;  // kNothing: the value has its bytes by now
  Node* node = nullptr;        // that computes it
  Values inputs = {};          // that are missing
};

// Whether a value that its budget has offloaded is computed again nevertheless, for that takes less time than the way
// back, which has not begun.
bool computes_instead(LockedTape& tape, Value& value) {
  Budget* budget = tape.budget().get();
  if (C10_LIKELY(!value.is_offloaded() || !value.budget().copyable || budget == nullptr) ||
      value.decided() != Decided::kKeep || offloaded_of(value)->is_near() ||
      !budget->held()->is_cheaper_to_compute(value)) {
    return false;
  }
  tape.kept().compute_instead(&value);
  return true;
}

Step next_step(Tape& tape, Missing& missing) {
  Step step;
  {
    const Tape::Lock locked(tape);
    const Value& value = *missing.value;
    if (value.is_at_hand()) {
      return step;
    }
    if (must_unpack(value) && !computes_instead(*locked, *missing.value)) {
      step.kind = Step::Kind::kUnpack;
      return step;
    }
    step.node = value.producer();
    find_missing_inputs(*step.node, step.inputs);
  }
  if (tape.budget() != nullptr && !missing.inputs) {
    missing.inputs.emplace(tape, *step.node);
    const Tape::Lock locked(tape);
    find_missing_inputs(*step.node, step.inputs);  // until now they could be dropped
  }
  step.kind = step.inputs.empty() ? Step::Kind::kReplay : Step::Kind::kGatherInputs;
  return step;
}

// A budget must know everything before anything is pinned in it.
void start_tracking_for(Tape& tape, const Value& target) {
  Budget* budget = tape.budget();
  if (budget == nullptr) {
    return;
  }
  bool missing = false;
  {
    const Tape::Lock locked(tape);
    missing = !target.is_at_hand();
  }
  if (missing) {
    budget->start_tracking();
  }
}

// The ranks of a job replay in one order, which cannot depend on the room that one of them has.
bool must_keep_order(Tape& tape) {
  if (tape.budget() == nullptr || !tape.budget()->has_ranks()) {
    return false;
  }
  const Tape::Lock locked(tape);
  return locked->bytes().replays_communicate();
}

// Depth first over what is missing, with a stack of our own: a chain may be a million ops long. False if a budget has
// no room for it: all that is there is then still there, or can be computed again. With `must` there is an error then,
// or a soft budget is exceeded.
bool realize_in_order(Tape& tape, Value* target, bool must) {
  c10::SmallVector<Missing, 4> missing;
  missing.push_back({target, std::nullopt});
  while (!missing.empty()) {
    const Step step = next_step(tape, missing.back());
    switch (step.kind) {
      case Step::Kind::kNothing:
        missing.pop_back();
        break;
      case Step::Kind::kUnpack:
        if (must) {
          unpack_again(tape, missing.back().value, /*enough_budget=*/0);
        } else if (!unpack_if_there_is_room(tape, missing.back().value)) {
          return false;
        }
        break;
      case Step::Kind::kReplay:
        if (must) {
          replay(tape, step.node, /*enough_budget=*/0);
        } else if (!replay_if_there_is_room(tape, step.node)) {
          return false;
        }
        break;
      case Step::Kind::kGatherInputs:
        for (Value* input : step.inputs) {
          missing.push_back({input, std::nullopt});
        }
        break;
    }
  }
  return true;
}

void realize(Tape& tape, Value* target) {
  const bool must = must_keep_order(tape);
  if (!realize_in_order(tape, target, must)) {
    realize_sparingly(tape, target);
  }
}

// Nothing asks for the value a second time: the graph is freed as it is walked, and only the hook that takes the value
// out now wants it.
bool is_taken_for_good(const Value& value) {
  return !torch::autograd::get_current_graph_task_keep_graph() && value.is_used_only_by_one_pinned_hook();
}

}  // namespace

at::Tensor tensor_at_hand(LockedTape& tape, Value* value, const TensorMeta* meta) {
  if (!value->is_at_hand() || is_clobbered(*value)) {
    return {};
  }
  // The long way gathers the parameter, or throws.
  if (const ManagedForm* managed = value->managed_form(); C10_UNLIKELY(managed != nullptr)) {
    if (managed->tensor->is_missing()) {
      return {};
    }
  }
  return tensor_of(tape, value, meta);
}

at::Tensor materialize(Tape& tape, Value* value, const TensorMeta* meta) {
  at::Tensor tensor;
  bool copies = false;
  while (!tensor.defined()) {
    start_tracking_for(tape, *value);
    const BudgetPins handing_over(tape, value);
    realize(tape, value);
    gather_missing(tape, *value);
    const Tape::Lock locked(tape);
    // Another thread, for which memory has run out, may have had the budget track values just now, and drop this one,
    // which was not pinned there.
    if (value->is_at_hand()) {
      tensor = tensor_of(*locked, value, meta);
      copies = is_clobbered(*value) && (value->is_offloaded() || !is_taken_for_good(*value));
    }
  }
  if (copies) {
    tensor = meta->over(copy_storage(tensor.storage(), tensor.storage().nbytes()));
  }
  return tensor;
}

}  // namespace ac2::internal

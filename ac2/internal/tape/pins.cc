#include "ac2/internal/tape/pins.h"

#include <c10/util/Exception.h>
#include <c10/util/SmallVector.h>

#include <utility>

namespace ac2::internal {

namespace {

using Work = c10::SmallVector<Value*, 16>;

void add_inputs(Work& work, const Node& node) {
  for (const NodeInput& input : node.inputs) {
    if (input.value != nullptr) {
      work.push_back(input.value);
    }
  }
}

}  // namespace

void Pins::pin(Value* root, bool original_goes) {
  Work work{root};
  while (!work.empty()) {
    Value* value = work.pop_back_val();
    // A copy on the host, or a packed form, may have been made after the change, which did not wait for it.
    if (value->decided() == Decided::kKeep && (value->is_held_by_reference() || value->is_brought_back()) &&
        value->changed_outside()) {
      bytes_.drop_held(value);
    }
    if (value->parts.pins.change()++ > 0 || value->is_at_hand() || (value->is_packed() && !value->is_brought_back())) {
      continue;
    }
    const bool goes = original_goes && value == root;
    if ((!goes && bytes_.take_original(value)) || value->is_brought_back()) {
      continue;
    }
    Node* node = value->producer();
    TORCH_INTERNAL_ASSERT(node != nullptr, "a value is neither kept nor computable");
    value->parts.waits.change() = true;
    bytes_.note_waits(*value);
    if (node->waiting_outputs++ == 0) {
      add_inputs(work, *node);
    }
  }
}

void Pins::unpin(Value* root) {
  Work work{root};
  while (!work.empty()) {
    Value* value = work.pop_back_val();
    if (--value->parts.pins.change() > 0) {
      continue;
    }
    bytes_.drop_there(value);
    if (!std::exchange(value->parts.waits.change(), false)) {
      continue;
    }
    Node* node = value->producer();
    if (--node->waiting_outputs == 0) {
      add_inputs(work, *node);
    }
  }
}

void Pins::need_again(Value* value, bool original_goes) {
  if (!value->is_pinned() || value->waits() || value->is_at_hand()) {
    return;
  }
  // As if the pins had been set just now.
  const int32_t pins = std::exchange(value->parts.pins.change(), 0);
  pin(value, original_goes);
  value->parts.pins.change() = pins;
}

void Pins::realized(Node* node) {
  for (const NodeOutput& output : node->outputs) {
    if (output.value != nullptr) {
      output.value->parts.waits.change() = false;
    }
  }
  node->waiting_outputs = 0;
  for (const NodeInput& input : node->inputs) {
    if (input.value != nullptr) {
      unpin(input.value);
    }
  }
}

}  // namespace ac2::internal

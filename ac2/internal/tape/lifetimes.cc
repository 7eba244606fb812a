#include "ac2/internal/tape/lifetimes.h"

#include <atomic>

#include "ac2/internal/graph/live_nodes.h"

namespace ac2::internal {

void Lifetimes::unref(Value* value) {
  if (--value->parts.refs.change() > 0) {
    return;
  }
  value->parts.next_dead.change() = std::exchange(dying_, value);
  if (!taking_apart_) {
    take_dying_apart();
  }
}

void Lifetimes::take_dying_apart() {
  taking_apart_ = true;
  while (dying_ != nullptr) {
    Value* value = std::exchange(dying_, dying_->parts.next_dead.change());
    if (value->producer() != nullptr) {
      detach_producer(value);
    }
    bytes_.drop_held(value);
    bytes_.drop_there(value);
    bytes_.value_died(value);
    budget_.forget(*value);
    observers_.tell([&](Observer& observer) { observer.value_died(*value); });
    trash_.put(value);
  }
  taking_apart_ = false;
}

void Lifetimes::attach(Node* node, Value* value, NodeOutput output, bool saved) {
  value->parts.producer.change() = node;
  value->parts.slot.change() = static_cast<uint32_t>(node->outputs.size());
  value->parts.counts_on_replay.change() = !saved;
  output.value = value;
  node->outputs.push_back(output);
  ++node->live_outputs;
  if (!saved) {
    add_recomputed_output(node);
  }
}

void Lifetimes::node_finished() {
  ++live_nodes_;
  internal::live_nodes().fetch_add(1, std::memory_order_relaxed);
}

void Lifetimes::discard(Node* node) {
  for (const NodeInput& input : node->inputs) {
    if (input.value != nullptr) {
      unref(input.value);
    }
  }
  trash_.put(node);
}

Node* Lifetimes::take_off_node(Value* value) {
  Node* node = std::exchange(value->parts.producer.change(), nullptr);
  node->outputs[value->slot()].value = nullptr;
  return node;
}

void Lifetimes::detach_producer(Value* value) {
  Node* node = take_off_node(value);
  lose_output(node, std::exchange(value->parts.counts_on_replay.change(), false));
}

void Lifetimes::make_outside(Value* value) {
  bytes_.drop_held(value);
  budget_.make_outside(*value);
  Node* node = take_off_node(value);
  const bool recomputed = std::exchange(value->parts.counts_on_replay.change(), false);
  // Before the node lets go of its inputs, because perhaps only they keep the bytes alive.
  if (value->is_used()) {
    bytes_.hold(value);
  }
  lose_output(node, recomputed);
}

void Lifetimes::lose_output(Node* node, bool recomputed) {
  if (recomputed) {
    remove_recomputed_output(node);
  }
  if (--node->live_outputs > 0) {
    return;
  }
  --live_nodes_;
  internal::live_nodes().fetch_sub(1, std::memory_order_relaxed);
  discard(node);
}

void Lifetimes::count_on_replay(c10::ArrayRef<Value*> values) {
  for (Value* value : values) {
    value->parts.counts_on_replay.change() = true;
  }
  for (const Value* value : values) {
    add_recomputed_output(value->producer());
  }
}

void Lifetimes::count_on_replay_no_more(Value* value) {
  value->parts.counts_on_replay.change() = false;
  remove_recomputed_output(value->producer());
}

void Lifetimes::add_recomputed_output(Node* node) {
  if (node->recomputed_outputs++ > 0) {
    return;
  }
  for (const NodeInput& input : node->inputs) {
    if (input.value != nullptr) {
      use(input.value);
    }
  }
}

void Lifetimes::remove_recomputed_output(Node* node) {
  if (--node->recomputed_outputs > 0) {
    return;
  }
  for (const NodeInput& input : node->inputs) {
    if (input.value != nullptr) {
      unuse(input.value);
    }
  }
}

}  // namespace ac2::internal

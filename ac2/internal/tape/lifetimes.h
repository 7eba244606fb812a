// How long values and nodes live.
//
//   Value* value = lifetimes.make_value(storage);
//   lifetimes.ref(value);       // until the matching unref()
//   lifetimes.use(value);       // a saved value is held until the matching unuse()
//
// A node lives as long as one of its results, and refers to its inputs. The node uses its inputs while a result may
// have to be recomputed. Chains of any length die in a loop, not by recursion.
//
// Threads: guarded by the tape's lock.
#pragma once

#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <utility>

#include "ac2/internal/graph/node.h"
#include "ac2/internal/tape/value_bytes.h"

namespace ac2::internal {

class Lifetimes {
 public:
  Lifetimes(GraphMemory& memory, ValueBytes& bytes, BudgetShare& budget, TrashCan& trash, const Observers& observers)
      : memory_(memory), bytes_(bytes), budget_(budget), trash_(trash), observers_(observers) {}

  template <class... Args>
  Value* make_value(Args&&... args) {
    return memory_.values.make(std::forward<Args>(args)...);
  }
  // Throws a value away that was made and has no reference.
  void discard(Value* value) { trash_.put(value); }

  void ref(Value* value) { ++value->parts.refs.change(); }
  void unref(Value* value);
  // `original`: as ValueBytes::hold().
  void use(Value* value, const c10::Storage* original = nullptr) {
    if (value->parts.users.change()++ == 0 && !value->counts_on_replay()) {
      bytes_.hold(value, original);
    }
  }
  void unuse(Value* value) {
    if (--value->parts.users.change() == 0) {
      bytes_.drop_held(value);
    }
  }

  // A node without outputs yet: attach() it to some, or discard() it.
  Node* make_node() { return memory_.nodes.make(); }
  void discard(Node* node);
  // Wires a finished node to one of its outputs. The node is freed when the last of its outputs dies.
  void attach(Node* node, Value* value, NodeOutput output, bool saved);
  // Called after all outputs of a node have been attached.
  void node_finished();
  // The values, which have producers, count on a replay from now on. A node uses its inputs as long as one of its
  // outputs does so. None of the values is held for that, so they may be gone.
  void count_on_replay(c10::ArrayRef<Value*> values);
  void count_on_replay_no_more(Value* value);
  // `value` is not computed again from now on.
  void detach_producer(Value* value);
  // The same for a value whose bytes the program has, and which is held from now on as one from outside is.
  void make_outside(Value* value);

  int64_t live_nodes() const { return live_nodes_; }

 private:
  void take_dying_apart();
  void add_recomputed_output(Node* node);
  void remove_recomputed_output(Node* node);
  // Takes the value off its node, which then has an output less, and returns the node.
  static Node* take_off_node(Value* value);
  // An output has been taken off `node`. `recomputed` says whether the node was to compute that output again.
  void lose_output(Node* node, bool recomputed);

  GraphMemory& memory_;
  ValueBytes& bytes_;
  BudgetShare& budget_;
  TrashCan& trash_;
  const Observers& observers_;
  Value* dying_ = nullptr;  // without references, not yet taken apart
  bool taking_apart_ = false;
  int64_t live_nodes_ = 0;
};

}  // namespace ac2::internal

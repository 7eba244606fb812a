#include "ac2/internal/tape/anchors.h"

#include <c10/util/SmallVector.h>

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "ac2/internal/tape/carried_over.h"

// Rejected for what keeps too much: saving all that is made under no_grad (it saves masks and frozen encoders that
// recompute_all is meant to recompute); a limit on the depth of a replay (it saves results in the middle of a model's
// forward); an age in ops (what is carried over is always young); asking plain PyTorch whether a tensor's graph lives
// (its storage does not tell); cutting at a write to a parameter (superfluous: after a backward nothing wants the old
// contents, so that the write leaves a value from outside).
//
// Rejected for graphs that overlap: counting all nodes through what hooks want (it saves one activation in so many of a
// long forward that only logs them by x.detach()); a limit on that walk (it does not see past larger graphs); cutting
// at each backward what other graphs want (some loops have no backward); a mark on what hooks have wanted once (an
// encoder whose graph was dropped has it on all its values); counting bytes of shorter stretches (an image that the
// program has dropped is one).
namespace ac2::internal {

namespace {

// For each recorded node, looks examine this many values on average.
constexpr uint64_t kLooks = 4;
// For each recorded node, looks through graphs examine this many nodes on average.
constexpr int64_t kLooksThrough = 4;

// Whether the bytes that forward computed are still there, and no replay is about to read them. A value that is wanted
// in another form is in that form already.
bool may_be_anchored(const Value& value) {
  return value.producer() != nullptr && value.is_in_map() && value.original_is_alive() && !value.changed_outside() &&
         !value.is_held_privately() && !value.is_pinned() && !value.is_there() &&
         (!value.has_form() || !value.is_used());
}

// Whether more than `most_nodes` or `most_bytes` are there for the sake of `value`. Nodes behind a value that autograd
// wants are there for autograd and do not count.
bool reaches_more(const Value& value, size_t most_nodes, int64_t most_bytes) {
  c10::SmallVector<const Node*, Anchors::kReach + 1> nodes{value.producer()};
  int64_t bytes = 0;
  for (size_t i = 0; i < nodes.size(); ++i) {
    for (const NodeInput& input : nodes[i]->inputs) {
      if (input.value == nullptr || input.value->has_hooks()) {
        continue;
      }
      bytes += bytes_of_our_own(*input.value);
      const Node* node = input.value->producer();
      if (node != nullptr && std::find(nodes.begin(), nodes.end(), node) == nodes.end()) {
        nodes.push_back(node);
      }
      if (nodes.size() > most_nodes || bytes > most_bytes) {
        return true;
      }
    }
  }
  return false;
}

}  // namespace

void Anchors::backward_ended() {
  anchor_far_back();
  storages_.clear_unpacked();
  // Only the index refers to these values, and the list of those that were let go.
  anchor_where([](const Value& value) { return value.is_known_to_index_alone(); });
}

void Anchors::note_far_back(Value* value) {
  lifetimes_.ref(value);
  far_back_.push_back(value);
}

void Anchors::anchor_far_back() {
  for (Value* value : far_back_) {
    if (may_be_anchored(*value) && value->producer()->reaches_far_back) {
      anchor(value);
    }
  }
  let_go_of_far_back();
}

void Anchors::let_go_of_far_back() {
  for (Value* value : far_back_) {
    lifetimes_.unref(value);
  }
  far_back_.clear();
}

void Anchors::plan_look_through(bool has_looked_through, int64_t living) {
  if (!looks_again_) {
    through_at_ = kNever;
  } else if (has_looked_through || through_at_ == kNever) {
    const int64_t most = 2 * (lifetimes_.live_nodes() + living + static_cast<int64_t>(kReach)) / kLooksThrough;
    through_at_ = finished_ + (most * static_cast<int64_t>(next_draw()) >> 32);
  }
}

void Anchors::look() {
  anchor_far_back();
  const int64_t nodes = lifetimes_.live_nodes();
  const int64_t bytes = ledger_.saved_bytes();
  if (nodes >= nodes_limit_ || bytes >= bytes_limit_ || std::exchange(is_due_, false)) {
    int64_t living = 0;
    bool any = false;
    storages_.for_each([&](const Value* value) {
      ++living;
      any |= value->is_without_gradient() && value->producer() != nullptr;
    });
    const bool looks_through = finished_ >= through_at_;
    // Most training has no such value.
    if (any) {
      anchor_where(
          [](const Value& value) { return value.is_without_gradient() && reaches_more(value, kReach, value.bytes()); });
      if (looks_through) {
        anchor_carried_over();
      }
    }
    most_nodes_between_ = std::max(kNodes, living);
    nodes_limit_ = bytes_limit_ = std::numeric_limits<int64_t>::max();
    looks_again_ =
        lifetimes_.live_nodes() > std::max(kNodes, nodes) / 2 || ledger_.saved_bytes() > std::max(kBytes, bytes) / 2;
    below_per_node_ = (kLooks << 32) / static_cast<uint64_t>(living + 1);
    plan_look_through(looks_through, living);
  }
  // The next look does not wait for twice as many nodes, because it may find what this one has missed. If fewer are
  // left by then, the next look comes sooner.
  nodes_limit_ = std::min(nodes_limit_, lifetimes_.live_nodes() + most_nodes_between_);
  const int64_t left = ledger_.saved_bytes();
  bytes_limit_ = std::min(bytes_limit_, left + std::max(kBytes, left / 4));
  asks_for_gradients_ = looks_again_ || nodes + kNodes / 4 >= nodes_limit_ || bytes + bytes / 8 >= bytes_limit_;
}

void Anchors::anchor_for_room() {
  anchor_where([](const Value& value) { return reaches_more(value, kReach, 0); });
}

void Anchors::anchor_where(c10::function_ref<bool(const Value&)> condition) {
  storages_.sweep();
  std::vector<Value*> candidates;
  storages_.for_each([&](Value* value) {
    if (value->producer() != nullptr) {
      candidates.push_back(value);
    }
  });
  // The youngest first: the node of a young value may be all that refers to an older value.
  std::sort(candidates.begin(), candidates.end(),
            [](const Value* a, const Value* b) { return a->producer()->index > b->producer()->index; });
  for (Value* value : candidates) {
    if (may_be_anchored(*value) && condition(*value)) {
      anchor(value);
    }
  }
}

void Anchors::anchor_carried_over() {
  const std::vector<Value*> found =
      carried_over(storages_, {.length = kReach, .nodes = kNodes, .bytes = kBytes},
                   [](const Value& value) { return value.is_without_gradient() && may_be_anchored(value); });
  std::for_each(found.rbegin(), found.rend(), [this](Value* value) { anchor(value); });
}

void Anchors::anchor(Value* value) {
  observers_.tell([&](Observer& observer) { observer.anchored(*value); });
  lifetimes_.make_outside(value);
}

}  // namespace ac2::internal

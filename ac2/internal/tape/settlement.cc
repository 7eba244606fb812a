// A tape's part in what the ranks of a job agree on before a backward (ac2/rank_group.h).
//
// A result depends on the other ranks if a replay of it may communicate: its op is a collective that is replayed, or
// takes a parameter that is gathered for replays, or takes a result that depends on them and is not held. settle() goes
// through the calls in their order. A result that depends on them and that hooks want is held for good if all ranks
// hold it. Otherwise it is dropped on all of them. After that no budget decides on it: when backward has brought a
// dropped one back, it stays until nothing waits for it, so that its op runs once on all ranks.
//
// A result that does not depend on them stays the budget's choice.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "ac2/internal/budget/rank_agreement.h"
#include "ac2/internal/libtorch/managed_tensors.h"
#include "ac2/internal/tape/tape.h"

namespace ac2::internal {

namespace {

constexpr int64_t kBytesOfCall = RankAgreement::kBytesOfCall;

// Whether hooks want the value, and a budget decides on it.
bool is_kept(const Value& value) {
  return value.decided() == Decided::kKeep && value.has_hooks();
}

bool is_held(const Value& value) {
  return value.state().held != Held::kNot;
}

bool communicates(LockedTape& tape, const Node& node) {
  if (node.facts->communicates && node.replayable) {
    return true;
  }
  return std::any_of(node.inputs.begin(), node.inputs.end(), [&](const NodeInput& input) {
    const ManagedForm* managed = input.value != nullptr ? input.value->managed_form() : nullptr;
    return managed != nullptr && (tape.gather_units() != nullptr || managed->tensor->has_gatherer);
  });
}

// Settlement decides on the results of a tape that depend on the other ranks, and carries that out.
class Settlement {
 public:
  Settlement(LockedTape& tape, c10::ArrayRef<uint8_t> drops)
      : tape_(tape),
        drops_(drops),
        first_(tape.settled_calls()),
        end_(first_ + static_cast<int64_t>(drops.size()) / kBytesOfCall) {}

  int64_t end() const { return end_; }

  void look_at(Node& node) {
    if (node.index >= end_) {
      return;  // another thread has recorded it since add_drops(): it is the next agreement's
    }
    if (!communicates(tape_, node) && !takes_what_depends(node)) {
      return;
    }
    const bool is_settled = node.index < first_;
    const bool drops = !is_settled && is_dropped(node);
    node.ranks_differ |= drops && says(node, RankAgreement::kAbsent) != 0;
    for (const NodeOutput& output : node.outputs) {
      Value* value = output.value;
      if (value == nullptr || !value->counts_on_replay()) {
        continue;
      }
      if (!is_settled && is_kept(*value) && is_held(*value) && !drops) {
        add(to_hold_, value);
        continue;
      }
      depend_.insert(value);
      if (!is_settled) {
        add(to_drop_, value);
      }
    }
  }

  void carry_out() {
    for (Value* value : to_drop_) {
      tape_.kept().drop_for_good(value);
      tape_.lifetimes().unref(value);
    }
    for (Value* value : to_hold_) {
      tape_.kept().hold_for_good(value);
      tape_.lifetimes().unref(value);
    }
  }

 private:
  // A value that is held for good lets go of what it was computed from, and perhaps of others that are in a list.
  void add(std::vector<Value*>& values, Value* value) {
    tape_.lifetimes().ref(value);
    values.push_back(value);
  }
  bool takes_what_depends(const Node& node) const {
    return std::any_of(node.inputs.begin(), node.inputs.end(),
                       [&](const NodeInput& input) { return depend_.contains(input.value); });
  }
  // What all ranks together say of a call that is not settled.
  uint8_t says(const Node& node, int64_t which) const {
    return drops_[static_cast<size_t>((node.index - first_) * kBytesOfCall + which)];
  }
  // One of them does not hold a result, or has no hook that wants it, so that nothing holds it there.
  bool is_dropped(const Node& node) const {
    return says(node, RankAgreement::kDropped) != 0 ||
           says(node, RankAgreement::kHooked) + says(node, RankAgreement::kNotHooked) != RankAgreement::kMostHooked;
  }

  LockedTape& tape_;
  const c10::ArrayRef<uint8_t> drops_;
  const int64_t first_;  // that is not settled yet
  const int64_t end_;
  absl::flat_hash_set<const Value*> depend_;
  std::vector<Value*> to_hold_;
  std::vector<Value*> to_drop_;
};

// Writes what the tape has of one of its calls.
void describe_call(const Node& node, uint8_t* bytes) {
  for (const NodeOutput& output : node.outputs) {
    const Value* value = output.value;
    if (value == nullptr || !value->counts_on_replay()) {
      continue;
    }
    bytes[RankAgreement::kAbsent] = 0;
    if (is_kept(*value)) {
      bytes[RankAgreement::kDropped] |= is_held(*value) ? 0 : 1;
      if (bytes[RankAgreement::kHooked] < RankAgreement::kMostHooked) {
        ++bytes[RankAgreement::kHooked];
        --bytes[RankAgreement::kNotHooked];
      }
    }
  }
}

void add_drops_of(const LockedTape& tape, int64_t calls, std::vector<uint8_t>& drops) {
  const int64_t first = tape.settled_calls();
  const size_t begin = drops.size();
  drops.resize(begin + static_cast<size_t>((calls - first) * kBytesOfCall));
  const auto bytes_of = [&](int64_t call) {
    return &drops[begin + static_cast<size_t>((call - first) * kBytesOfCall)];
  };
  for (int64_t call = first; call < calls; ++call) {
    bytes_of(call)[RankAgreement::kNotHooked] = RankAgreement::kMostHooked;
    bytes_of(call)[RankAgreement::kAbsent] = 1;
  }
  for (const Node* node : tape.reachable_nodes()) {
    if (node->index >= first) {
      describe_call(*node, bytes_of(node->index));
    }
  }
}

}  // namespace

void Tape::add_drops(std::vector<uint8_t>& drops) {
  const Lock locked(*this);
  const int64_t calls = ops_so_far();
  if (locked->bytes().replays_communicate() && calls > locked->settled_calls()) {
    add_drops_of(*locked, calls, drops);
  }
}

void Tape::settle(c10::ArrayRef<uint8_t> drops) {
  const Lock locked(*this);
  Settlement settlement(*locked, drops);
  for (Node* node : locked->reachable_nodes()) {
    settlement.look_at(*node);
  }
  settlement.carry_out();
  locked->set_settled_calls(settlement.end());
}

}  // namespace ac2::internal

// Chooses which values to evict so that the bytes held stay within a budget.
//
//   Evictor evictor({.budget = 1 << 30});
//   // An op is about to run. Its inputs must stay, and its results need room.
//   for (ValueId v : inputs) evictor.pin(v);
//   while (evictor.held_bytes() + result_bytes > evictor.budget()) {
//     const ValueId victim = evictor.next_victim();
//     if (victim == kNoId) fail(…);   // at least unevictable_bytes() + result_bytes are needed
//     …drop the bytes of the victim…
//     evictor.set_place(victim, Place::kNowhere);
//   }
//   // The op has run.
//   evictor.ran(cost);
//   const NodeId node = evictor.add_node(cost, inputs);
//   const ValueId result = evictor.add_result(node, bytes, Retention::kPreferSave);
//   evictor.set_place(result, Place::kHeld);
//   evictor.add_hook(result);
//   for (ValueId v : inputs) { evictor.used(v); evictor.unpin(v); }
//
// The evictor knows sizes, costs and the graph of a program. The evictor knows no tensors and includes nothing of
// LibTorch, so that the runtime and the simulator in benchmarks/simulator drive the same code with the same calls. The
// evictor drops no bytes itself. next_victim() names a victim, and the caller drops the bytes and reports that with
// set_place().
//
// The caller reports each event when it happens; each function below says which event it stands for. Costs are in any
// unit that is the same throughout, such as nanoseconds or the units of a model. The evictor's clock is the sum of the
// costs reported to ran(), replays included.
//
// Guaranteed: the same calls give the same victims, because no address, hash order or real time matters. Not
// guaranteed: that a victim is the best one. Costs that changed far away in the graph are noticed late; docs/budget.md
// says how often that matters.
//
// Cost: until next_victim() is called for the first time, an event costs O(1), plus the values whose need it changes.
// next_victim() looks at the heads of some dozens of buckets, at the evicted neighbours of a few candidates, and at the
// values whose cost has changed since the last call.
//
// Misuse throws std::logic_error. Threads: not thread-safe. The runtime calls it under the mutex of its Budget.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <vector>

#include "absl/types/span.h"
#include "ac2/internal/eviction/candidate_index.h"
#include "ac2/internal/eviction/eviction_rule.h"
#include "ac2/internal/eviction/evictor_graph.h"
#include "ac2/internal/eviction/evictor_ids.h"
#include "ac2/internal/eviction/foresight.h"
#include "ac2/internal/eviction/replay_needs.h"
#include "ac2/internal/eviction/return_costs.h"
#include "ac2/internal/eviction/unneeded_queue.h"

namespace ac2::internal {

// Where the bytes of a value are.
enum class Place : uint8_t {
  kNowhere,    // gone: dropped, or overwritten
  kHeld,       // held for backward, or brought back by a replay; these bytes count
  kElsewhere,  // the program keeps the storage alive by itself: the bytes do not count, and evicting frees nothing
  kOnHost,     // in the memory of the host, from which they can be copied back: the bytes do not count
  kPacked,     // packed into a form, from which they can be had again: the bytes of that form count
};

class Evictor {
 public:
  // In place of the bytes of a packed form: the value has none. A form in a file has 0 bytes.
  static constexpr int64_t kNotPacked = -1;

  struct Options {
    int64_t budget = std::numeric_limits<int64_t>::max();  // bytes
    RuleConstants rule = {};
  };

  explicit Evictor(const Options& options);
  // Whom the evictor asks. Each may be null. Advisers may be made after the evictor, and must live until its last call.
  struct Advisers {
    const Foresight* foresight = nullptr;  // knows the step beforehand
    const ReturnCosts* copies = nullptr;   // the costs of values that have a copy on the host
    const ReturnCosts* packing = nullptr;  // the costs of values that were packed, or may be
  };
  void consult(const Advisers& advisers) { advisers_ = advisers; }
  // The same as if this evictor had been told all that `other` was told: the graph, the events, the budget and the
  // rule. The advisers stay those of this evictor.
  void take_over(const Evictor& other);

  // --- the graph ---

  // The program meets a value without a producer: a parameter, an input, or the result of an op that cannot be
  // replayed. Its retention is kMustSave.
  ValueId add_outside(int64_t bytes, Place place);
  // An op that can be replayed has run. Views make no node.
  NodeId add_node(double cost, absl::Span<const ValueId> inputs) { return graph_.add_node(cost, inputs); }
  // Called once for each storage that the op of `node` has made or written. A write makes a new value: the old one is
  // an input of the node, and is set to kNowhere when its bytes are overwritten. The new value is nowhere until
  // set_place().
  ValueId add_result(NodeId node, int64_t bytes, Retention retention);
  // The node has all its results, and `fixed` bytes are held that the evictor does not know of. Decides for each result
  // whether it is kept to the last, because there would not be room to bring it back once it is evicted.
  void note_needs(NodeId node, int64_t fixed);
  // Does the same anew for all nodes.
  void note_all_needs(int64_t fixed);
  // The value is gone for good. No hook may want it and no node may take it. A node goes with the last of its results.
  void forget(ValueId value);
  // `value` cannot be computed again from now on. Its bytes must be there.
  void make_outside(ValueId value);

  // --- events ---

  // Bytes have come or gone, whether the evictor asked for that or not. A needed value may go to kNowhere only if it
  // has a producer. A value from outside, or one that is kMustSave, must not go to kNowhere while a node takes it.
  // `packed_bytes` are those of its packed form, which is there alone (kPacked) or beside the bytes (kHeld). The form
  // is gone with the next set_place() that does not name it.
  void set_place(ValueId value, Place place, int64_t packed_bytes = kNotPacked);
  // A value without a producer is kMustSave for good.
  void set_retention(ValueId value, Retention retention);
  // A hook of autograd begins, or ceases, to want the value. (In the simulator, which has no autograd: a name that the
  // program has for a tensor.) A value that only replays of others want has no hook.
  void add_hook(ValueId value);
  void remove_hook(ValueId value);
  // Hooks on the value do not count, now and later, until heed_hooks(). The caller knows that they are in vain, as a
  // name is that the program has for a tensor that it does not use again. The value may then be dropped as unneeded.
  void ignore_hooks(ValueId value);
  void heed_hooks(ValueId value);
  bool ignores_hooks(ValueId value) const { return states_[value].ignores_hooks; }
  // The bytes must stay for now: while an op that takes the value runs, or while a replay gathers an op's inputs.
  void pin(ValueId value);
  void unpin(ValueId value);
  // An op that takes the value has run, recorded or replayed, or backward has unpacked it.
  void used(ValueId value);
  // An op has run or was replayed.
  void ran(double cost);
  // The foresight's answers about the value have changed, or about all values.
  void foresight_changed(ValueId value) { mark_stale(value); }
  void foresight_changed();
  // ReturnCosts' answer about the value has changed.
  void cost_of_return_changed(ValueId value) { mark_stale(value); }
  // Values are compared by other constants from now on. To be followed by foresight_changed().
  void set_rule(const RuleConstants& constants) { rule_.set_constants(constants); }

  // --- answers ---

  // The value to evict next, or kNoId if there is none. Values that are no longer needed come first, the largest before
  // the others; then those of Retention::kPreferRecompute, the best first; then those of kPreferSave; then, unless
  // `spare_last`, those that are kept to the last. A value that is pinned, kMustSave, without a producer, or neither
  // kHeld nor kPacked is never chosen. A value that has its bytes and a packed form goes to kPacked.
  ValueId next_victim(bool spare_last = false);
  // A held value that is no longer needed, which can be dropped at no cost, or kNoId. To be called after a replay, and
  // when a hook is gone.
  ValueId take_unneeded();

  // Whether the value may be dropped now: its bytes are held, and nothing says that they must stay. True of each value
  // that next_victim() and take_unneeded() return, until the caller reports the next event.
  bool may_drop(ValueId value) const { return counts(states_[value].place) && is_evictable(value); }
  bool is_needed(ValueId value) const { return graph_.is_needed(value); }
  // For a replay that gets by with few bytes: how many bytes it takes to bring the value back, beside those that cannot
  // be evicted or are kept to the last; and in which order it gathers what the value's node takes. See ReplayNeeds.
  int64_t bytes_to_replay(ValueId value) const { return needs_.bytes_for(graph_, value); }
  ReplayNeeds::Order order_to_replay(ValueId value) const;
  Place place(ValueId value) const { return states_[value].place; }
  // The evictor's clock, and the value's last use on it.
  double time() const { return time_; }
  double last_use(ValueId value) const { return states_[value].last_use; }
  // The cost of computing the value again once it is dropped.
  double cost_of_computing(ValueId value) { return rule_.cost_of_dropping(graph_, value); }
  // The score by which candidates are compared, the least first. The score is the cost of dropping the value, or
  // `cost`, set against its bytes and how long they are free.
  double score(ValueId value);
  double score(ValueId value, double cost) const;
  Retention retention(ValueId value) const { return states_[value].retention; }
  // Whether the value is chosen only when no other can be.
  bool is_kept_last(ValueId value) const { return states_[value].kept_last; }
  // A packed form of it is there, alone or beside its bytes.
  bool is_packed(ValueId value) const { return states_[value].packed_bytes != kNotPacked; }
  int64_t held_bytes() const { return held_bytes_; }
  int64_t on_host_bytes() const { return on_host_bytes_; }
  // The held bytes of values that are pinned or kMustSave.
  int64_t unevictable_bytes() const { return unevictable_bytes_; }
  int64_t budget() const { return budget_; }
  void set_budget(int64_t budget);
  const EvictorGraph& graph() const { return graph_; }

 private:
  Evictor& operator=(const Evictor&) = default;

  struct State {
    Place place = Place::kNowhere;
    Retention retention = Retention::kPreferSave;
    bool in_stale = false;
    bool in_unneeded = false;
    bool kept_last = false;
    bool ignores_hooks = false;
    int32_t ignored_hooks = 0;
    int32_t pins = 0;
    double last_use = 0;
    int64_t packed_bytes = kNotPacked;
  };

  static bool counts(Place place) { return place == Place::kHeld || place == Place::kPacked; }

  bool knows_uses() const { return advisers_.foresight != nullptr && advisers_.foresight->knows_uses(); }
  bool is_evictable(ValueId id) const;
  bool is_candidate(ValueId id) const;
  // Whether the value's bytes are there, and stay as long as there is anything else to evict.
  bool stays(ValueId id) const;
  void set_kept_last(ValueId id, bool kept_last);
  // Marks values whose place in the index is out of date.
  void mark_stale(ValueId id);
  void mark_neighbours_stale(ValueId id);
  // Moves what the graph noted as unneeded into the queue.
  void collect_unneeded();
  void push_unneeded(ValueId id);
  // Indexes all values that are marked.
  void index_stale();
  // Indexes a few candidates that are not marked.
  void refresh_some();
  // Puts the value where it belongs in the index, or takes it out if it is no candidate.
  void put_into_index(ValueId id);
  double cost_of_dropping(ValueId id);
  // The bytes that are free once it is dropped.
  int64_t freed_bytes(ValueId id) const {
    return states_[id].place == Place::kPacked ? states_[id].packed_bytes : graph_.value(id).bytes;
  }
  CandidateIndex& index_of(ValueId id) {
    return states_[id].kept_last                                  ? indices_[2]
           : states_[id].retention == Retention::kPreferRecompute ? indices_[0]
                                                                  : indices_[1];
  }
  void unindex(ValueId id);
  double key(ValueId id) const;
  double weight(double key) const;
  // The time that the rule sets distances against.
  double weighed_time() const;
  ValueId best_of(CandidateIndex& index);
  State& new_state(ValueId id);
  // Adds the value's bytes to the sums (sign 1) or takes them off (-1).
  void count(ValueId id, int64_t sign);

  EvictorGraph graph_;
  EvictionRule rule_;
  std::vector<State> states_;
  ReplayNeeds needs_;
  std::array<CandidateIndex, 3> indices_;  // of kPreferRecompute, of kPreferSave, and of what is kept to the last
  UnneededQueue unneeded_;
  std::vector<ValueId> stale_;
  std::vector<ValueId> affected_;
  ValueId cursor_ = 0;  // of refresh_some()

  int64_t budget_;
  Advisers advisers_;
  bool is_pressed_ = false;  // next_victim() has been called; nothing is indexed before
  double time_ = 0;
  double pressed_since_ = 0;  // the last time at which every needed value had its bytes
  int64_t held_bytes_ = 0;
  int64_t on_host_bytes_ = 0;
  int64_t unevictable_bytes_ = 0;
  int64_t kept_last_bytes_ = 0;  // of the held bytes that are evictable
};

}  // namespace ac2::internal

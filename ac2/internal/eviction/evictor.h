// Which values to drop so that what is held stays within a number of bytes. Knows sizes, costs and the graph; no
// tensors, nothing of LibTorch. The runtime and the simulator of benchmarks/ drive it with the same calls.
//
//   Evictor evictor({.budget = 1 << 30});
//   // an op is about to run: its inputs must stay, its results need room
//   for (ValueId v : inputs) evictor.pin(v);
//   for (ValueId v; evictor.held_bytes() + result_bytes > evictor.budget();) {
//     if ((v = evictor.next_victim()) == kNoId) fail(…);   // at least unevictable_bytes() + result_bytes are needed
//     …let go of v's bytes…
//     evictor.set_place(v, Place::kNowhere);
//   }
//   // it has run
//   evictor.ran(cost, Run::kFirst);
//   NodeId node = evictor.add_node(cost, inputs);
//   ValueId result = evictor.add_result(node, bytes, Retention::kPreferSave);
//   evictor.set_place(result, Place::kHeld);
//   evictor.add_holder(result);
//   for (ValueId v : inputs) { evictor.used(v); evictor.unpin(v); }
//
// What the caller reports, and when:
//   add_outside   a value without a producer is met: a parameter, an input, the result of an op that cannot be
//   replayed. add_node, add_result
//                 an op that can be replayed has run; once per storage that it made or wrote. A write makes a new
//                 value: the old one is an input of the node, and is set to kNowhere when its bytes are overwritten.
//                 Views make no node. The producer of a droppable value must stay: forget() a value only when nobody
//                 holds it and no node takes it; the node goes with its last result.
//   set_place     every time bytes come or go: kHeld when they are kept for backward and count, or when a replay has
//                 brought them back; kElsewhere while the program keeps the storage alive by itself, so that they are
//                 there but dropping them would free nothing; kNowhere when they are gone, by our advice or not. A
//                 needed value may go to kNowhere only if it has a producer. While a node takes a value from outside,
//                 that value must not go to kNowhere, and neither must one that is kMustSave.
//   add_holder, remove_holder
//                 somebody begins or ceases to want the value for its own sake: a hook of autograd that has not been
//                 unpacked; in the simulator a name. What only other values' replays want has no holder.
//   pin, unpin    the bytes must stay just now: around the running of an op, for its inputs; while a replay collects
//   inputs. used          after an op (recorded or replayed) that took the value, and when backward has unpacked it.
//   ran           after each op, with its cost. kFirst if the program ran it, kAgain if it was replayed.
//   set_next_use  only if Options::step_length > 0: after add_result(), and after each use by the program.
// Costs are in any unit that is the same throughout, a clock's nanoseconds or a model's; the clock is their sum. The
// same calls give the same victims: no address, hash order or real time matters.
//
// What it answers:
//   next_victim   what to drop next: values that nobody needs (largest first), then the best of those that policies
//   prefer to
//                 recompute, then the best of the others. Never what is pinned, must be saved, has no producer or is
//                 not kHeld. kNoId if there is none. It does not drop by itself.
//   take_unneeded what can be dropped for nothing: to be called after a replay, and when a holder goes.
//
// An event costs O(1) while there is no pressure, plus the changes of need that it causes. next_victim() looks at the
// heads of some dozens of buckets, at the evicted neighbours of a few candidates, and at what changed since the last
// call. Not thread-safe: the runtime calls it under the tape's lock.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <vector>

#include "absl/types/span.h"
#include "ac2/internal/eviction/candidate_index.h"
#include "ac2/internal/eviction/eviction_rule.h"
#include "ac2/internal/eviction/evictor_graph.h"
#include "ac2/internal/eviction/unneeded_queue.h"

namespace ac2::internal {

enum class Place : uint8_t { kNowhere, kHeld, kElsewhere };
enum class Retention : uint8_t { kPreferRecompute, kPreferSave, kMustSave };
enum class Run : uint8_t { kFirst, kAgain };

class Evictor {
 public:
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  struct Options {
    int64_t budget = std::numeric_limits<int64_t>::max();  // bytes
    RuleConstants rule = {};
    // Summed cost of the program's ops, if it is known when each value is used. Replays are not in it.
    double step_length = 0;
  };

  explicit Evictor(const Options& options);

  ValueId add_outside(int64_t bytes, Place place);
  NodeId add_node(double cost, absl::Span<const ValueId> inputs) { return graph_.add_node(cost, inputs); }
  ValueId add_result(NodeId node, int64_t bytes, Retention retention);
  void forget(ValueId value);

  void set_place(ValueId value, Place place);
  void set_retention(ValueId value, Retention retention);
  void add_holder(ValueId value);
  void remove_holder(ValueId value);
  void pin(ValueId value);
  void unpin(ValueId value);
  void used(ValueId value);
  // `time` on the clock of the ops of the program; kNever if it only serves to compute others.
  void set_next_use(ValueId value, double time);
  // What dropping the value is taken to cost, times this. 1 unless a plan of the step says otherwise.
  void set_bias(ValueId value, double factor);
  void ran(double cost, Run run);

  ValueId next_victim();
  // One value that is held and that nobody needs, or kNoId.
  ValueId take_unneeded();

  bool is_needed(ValueId value) const { return graph_.is_needed(value); }
  Place place(ValueId value) const { return states_[value].place; }
  Retention retention(ValueId value) const { return states_[value].retention; }
  int64_t held_bytes() const { return held_bytes_; }
  // Of the held: pinned, to be saved, or without producer. Never above held_bytes().
  int64_t unevictable_bytes() const { return unevictable_bytes_; }
  int64_t budget() const { return budget_; }
  void set_budget(int64_t budget);
  // On the clock of the ops of the program.
  double program_time() const { return program_time_; }
  const EvictorGraph& graph() const { return graph_; }

 private:
  struct State {
    Place place = Place::kNowhere;
    Retention retention = Retention::kPreferSave;
    bool queued = false;    // in stale_
    bool unneeded = false;  // in unneeded_
    int32_t pins = 0;
    double last_use = 0;
    double next_use = kNever;
    double bias = 1;
  };

  bool evictable(ValueId id) const;
  bool is_candidate(ValueId id) const;
  // Its place in the index is out of date.
  void mark_stale(ValueId id);
  void mark_neighbours_stale(ValueId id);
  void collect_unneeded();
  void push_unneeded(ValueId id);
  void score_stale();
  void refresh_some();
  // Puts it where it belongs.
  void score(ValueId id);
  CandidateIndex& index_of(ValueId id) {
    return states_[id].retention == Retention::kPreferRecompute ? indices_[0] : indices_[1];
  }
  void unindex(ValueId id);
  double key(ValueId id) const;
  double weight(double key) const;
  double next_use(ValueId id) const;
  ValueId best_of(CandidateIndex& index);
  State& new_state(ValueId id);
  // Adds the value's bytes to the sums, or takes them off.
  void count(ValueId id, int64_t sign);

  EvictorGraph graph_;
  EvictionRule rule_;
  std::vector<State> states_;
  std::array<CandidateIndex, 2> indices_;  // preferred to be recomputed, others
  UnneededQueue unneeded_;
  std::vector<ValueId> stale_;
  std::vector<ValueId> affected_;
  ValueId cursor_ = 0;

  int64_t budget_;
  const double step_length_;
  bool pressed_ = false;  // next_victim() has been called: before, nothing is indexed
  double time_ = 0;       // all ops
  double program_time_ = 0;
  double pressed_since_ = 0;  // when needed values began to be dropped, all since then not being back yet
  int64_t held_bytes_ = 0;
  int64_t unevictable_bytes_ = 0;
};

}  // namespace ac2::internal

// The rule that compares values: the cost of dropping one, against how many bytes that frees and for how long.
//
//   EvictionRule rule({}, budget);
//   score = rule.cost_of_dropping(graph, v) / (bytes * rule.weight(time - last_use, time));   // the least is evicted
//
// The rule follows Dynamic Tensor Rematerialization (arXiv 2006.09616), with another count of the evicted neighbours
// and another weight of time; docs/budget.md gives the reasons. Dropping a value v costs
//
//   own + forced + share · (apart + min(1, b / budget) · shared)
//
//   own      the cost of the op that makes v, unless that op must run again anyway
//   forced   the cost of the ops that would run again for v alone: its ancestors that are neither there nor needed
//   shared   the cost of the op that makes v, if that op must run again anyway for other results, and of v's other
//            ancestors and descendants that must run again. While they fit into the budget they run once, whatever
//            becomes of v. b is the bytes of all these and of v
//   apart    the cost of the op that makes v, in place of its part of `shared`, if no op has taken v, nor any of
//            the op's results that are gone. Forward still waits for one of them, and the others are for backward, so
//            that the op runs twice even where all of its results fit
//
// and is divided by bytes · w(D). D is the time since v was last used, or until it is used next if that is known.
//
//   w(D) = ((D + floor · T) / (D + T))^power
//   T = horizon · (time for which there has been pressure, or the step's length if that is known)
//
// Values that were last used longer ago than T count as equally old, because a value that is evicted in forward is
// missed only after the peak, however old it is. A younger value is evicted later than an older one, but the floor
// bounds that, because in a long replay every value is young.
#pragma once

#include <cstdint>
#include <vector>

#include "ac2/internal/eviction/evictor_graph.h"

namespace ac2::internal {

struct RuleConstants {
  double share = 0.5;
  double horizon = 0.3;
  double floor = 0.02;
  double power = 1;

  bool operator==(const RuleConstants&) const = default;
};

class EvictionRule {
 public:
  EvictionRule(const RuleConstants& constants, int64_t budget) : constants_(constants), budget_(budget) {}

  // `value` must be resident and have a producer. Looks at the absent values around it and at no others.
  double cost_of_dropping(const EvictorGraph& graph, ValueId value);
  // Appends to `affected` resident values whose cost has changed because `value` came or went. Looks near it alone: at
  // no more than kMaxAffected values above it, and as many beside and below it.
  void affected_by(const EvictorGraph& graph, ValueId value, std::vector<ValueId>& affected);
  // w(distance), where T is `horizon` times `time`.
  double weight(double distance, double time) const;
  // The most that weight() is for any distance.
  double most_weight(double time) const;

  const RuleConstants& constants() const { return constants_; }
  void set_constants(const RuleConstants& constants) { constants_ = constants; }
  void set_budget(int64_t budget) { budget_ = budget; }

 private:
  static constexpr size_t kMaxAffected = 32;

  void begin_walk(const EvictorGraph& graph);
  // False if it was visited in this walk before.
  bool visit_value(ValueId id);
  bool visit_node(NodeId id);

  RuleConstants constants_;
  int64_t budget_;
  // A value or node is visited if its mark is the number of the present walk: nothing is cleared between walks.
  std::vector<uint32_t> value_marks_;
  std::vector<uint32_t> node_marks_;
  uint32_t walk_ = 0;
  std::vector<ValueId> work_;
};

}  // namespace ac2::internal

// What dropping a value would cost, and how that is weighed against what it frees and for how long.
//
// After Dynamic Tensor Rematerialization (arXiv 2006.09616), with another count of the evicted neighbours and another
// weight of time; docs/budget.md says why. Dropping value v costs
//
//   own + forced + share · min(1, b / budget) · shared
//
//   own      the op that makes v, unless it must run again anyway
//   forced   ops that only v would make run again: those of its ancestors that are neither there nor needed
//   shared   the other ops of v's ancestors and descendants that must run again; b the bytes of those and of v. They
//            run once whatever becomes of v, while all that fits into the budget.
//
// and is divided by bytes · w(D), where D is the time since v was last used, or until it is used next if that is known:
//
//   w(D) = ((D + floor · T) / (D + T))^power
//   T = horizon · (time for which there has been pressure, or the step's length if known)
//
// Beyond T all are equally far away: what is dropped in forward is missed only after the peak, however old it is. Below
// it the younger goes later, but not without limit: in a long replay everything is young.
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
};

class EvictionRule {
 public:
  EvictionRule(const RuleConstants& constants, int64_t budget) : constants_(constants), budget_(budget) {}

  // Of a value that is there and has a producer. Looks at the evicted values around it and at no others.
  double cost_of_dropping(const EvictorGraph& graph, ValueId value);
  // Puts into `affected` values that are there and whose cost has changed because `value` came or went. Near ones, and
  // at most kMaxAffected.
  void affected_by(const EvictorGraph& graph, ValueId value, std::vector<ValueId>& affected);
  // w(distance); `time` is what T is `horizon` times of.
  double weight(double distance, double time) const;

  const RuleConstants& constants() const { return constants_; }
  void set_budget(int64_t budget) { budget_ = budget; }

 private:
  static constexpr size_t kMaxAffected = 32;

  void begin_walk(const EvictorGraph& graph);
  bool visit_value(ValueId id);
  bool visit_node(NodeId id);

  RuleConstants constants_;
  int64_t budget_;
  // Visited in the walk number `walk_`.
  std::vector<uint32_t> value_marks_;
  std::vector<uint32_t> node_marks_;
  uint32_t walk_ = 0;
  std::vector<ValueId> work_;
};

}  // namespace ac2::internal

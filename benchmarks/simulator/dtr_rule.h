// The rule h_DTR of Dynamic Tensor Rematerialization (Kirisame et al., arXiv 2006.09616), with the evicted
// neighbourhood e*(v) in full.
//
//   score = (cost of v and of e*(v)) / (bytes of v · time since v was last used)
//
// e*(v) has the evicted values that must be computed again before v can be, and those that cannot be computed again
// without v: chains of evicted values upwards, and chains of them downwards. As in the paper, a value costs its op and
// the ops of its views, the results of one op cost that op each, and a value that the program has released counts as
// evicted for good.
//
// OtherRuleSimulation releases values and brings them back as the rule's runtime does.
#pragma once

#include <cstdint>
#include <vector>

#include "benchmarks/simulator/other_rule.h"

namespace ac2::internal {

class DtrRule final : public OtherRule {
 public:
  using OtherRule::OtherRule;

 protected:
  double score(ValueId value, double limit) override;

 private:
  // Add to sum_, and stop when that is above `most`.
  void add_cost_above(ValueId value, double most);
  void add_cost_below(ValueId value, double most);
  void begin_walk(ValueId value);
  // Counts the value and goes on from it, if it is absent and was not met in this walk.
  void meet(ValueId value);

  std::vector<uint32_t> marks_;  // by value: the number of the walk that met it last
  uint32_t walk_ = 0;
  std::vector<ValueId> work_;
  double sum_ = 0;
};

}  // namespace ac2::internal

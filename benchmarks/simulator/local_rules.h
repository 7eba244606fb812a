// Simple rules, which look at nothing around a value. Dynamic Tensor Rematerialization (Kirisame et al., arXiv
// 2006.09616) is compared with them too, under the same names: h_DTR^local, h_LRU and h_size.
#pragma once

#include "benchmarks/simulator/other_rule.h"

namespace ac2::internal {

// Cost of the value alone / (bytes · time since the last use).
class DtrLocalRule final : public OtherRule {
 public:
  using OtherRule::OtherRule;

 protected:
  double score(ValueId value, double) override { return rate(cost(value), value); }
};

// The value that was last used longest ago.
class LruRule final : public OtherRule {
 public:
  using OtherRule::OtherRule;

 protected:
  double score(ValueId value, double) override { return -staleness(value); }
};

// The largest value.
class LargestRule final : public OtherRule {
 public:
  using OtherRule::OtherRule;

 protected:
  double score(ValueId value, double) override { return -bytes(value); }
};

}  // namespace ac2::internal

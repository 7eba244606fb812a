// The rule h_DTR^eq of Dynamic Tensor Rematerialization (Kirisame et al., arXiv 2006.09616), which the paper's
// prototype runs with: h_DTR (dtr_rule.h) with the evicted neighbourhood kept by union-find.
//
//   score = (cost of v and of the classes beside v) / (bytes of v · time since v was last used)
//
// A value that is evicted joins the classes of the evicted values that it was computed from and that were computed from
// it, and its cost is added to theirs. A value that is computed again takes its cost off its class and leaves. Classes
// are never split, so that a class may have values that no longer touch, which is the paper's approximation. Costs are
// those of dtr_rule.h.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "benchmarks/simulator/other_rule.h"

namespace ac2::internal {

class DtrClassRule final : public OtherRule {
 public:
  using OtherRule::OtherRule;

  void came(ValueId value) override;
  void left(ValueId value) override;

 protected:
  double score(ValueId value, double limit) override;

 private:
  // A node of the union-find; a value that is evicted twice has two.
  struct Element {
    uint32_t parent = 0;  // itself: it is the root
    double cost = 0;      // of the class; right at a root
  };

  uint32_t root(uint32_t element);
  // The roots of the classes beside the value, each once.
  absl::InlinedVector<uint32_t, 8> classes_beside(ValueId value);

  std::vector<Element> elements_;
  std::vector<uint32_t> element_of_;  // by value; kNoId: it is not evicted
};

}  // namespace ac2::internal

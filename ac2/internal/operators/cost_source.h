// Where the costs of ops come from, for a budget or a plan that compares them.
#pragma once

#include <cstdint>

namespace ac2::internal {

enum class CostSource : uint8_t {
  kMeasured,  // a clock, read around every op
  kModelled,  // the shapes of the tensors: the same program has the same costs in every run
};

// For the public options, which are bools.
inline CostSource cost_source(bool modelled_costs) {
  return modelled_costs ? CostSource::kModelled : CostSource::kMeasured;
}

}  // namespace ac2::internal

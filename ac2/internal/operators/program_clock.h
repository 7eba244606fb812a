// How far a program is: the costs of its ops up to now. Copies to the host are timed beside it.
#pragma once

#include <cstdint>

#include "ac2/internal/operators/cost_source.h"

namespace ac2::internal {

struct ProgramClock {
  uint64_t owner = 0;  // the number of the budget that counts
  double cost = 0;
  CostSource source = CostSource::kMeasured;
};

}  // namespace ac2::internal

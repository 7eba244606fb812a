#include "benchmarks/simulator/step_foresight.h"

#include <stdexcept>

#include "ac2/internal/eviction/indirect_use.h"

namespace ac2::internal {

StepForesight::Known& StepForesight::known_of(ValueId value) {
  if (value >= known_.size()) {
    known_.resize(value + 1);
  }
  return known_[value];
}

void StepForesight::set_next_use(ValueId value, double time) {
  known_of(value).next_use = time;
}

void StepForesight::set_cost_factor(ValueId value, double factor) {
  if (!(factor > 0)) {
    throw std::logic_error("a cost factor must be positive");
  }
  known_of(value).cost_factor = factor;
}

double StepForesight::next_use(ValueId value) const {
  const double known = known_of(value).next_use;
  if (known != kNever) {
    return known;
  }
  const double first =
      first_indirect_use(evictor_, value, [this](ValueId result) { return known_of(result).next_use; });
  return first != kNever ? first : 2 * now_;
}

}  // namespace ac2::internal

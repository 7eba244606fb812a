// Knowledge of a step, which cannot be had while a program runs for the first time.
//
// StepMemory, which budgets have, implements it with the steps that ran before. StepForesight of benchmarks/simulator
// implements it for a step that is known beforehand, to find out how much better a budget would be met.
#pragma once

#include "ac2/internal/eviction/evictor_ids.h"

namespace ac2::internal {

class Foresight {
 public:
  virtual ~Foresight() = default;

  // Whether next_use(), now() and step_length() are known; they are not called otherwise. The caller that makes the
  // answer change tells the evictor (foresight_changed).
  virtual bool knows_uses() const = 0;
  // When the value is used next. All three times are on the clock of the ops of the program: the sum of the costs of
  // those that it has run, replays left out.
  virtual double next_use(ValueId value) const = 0;
  virtual double now() const = 0;
  virtual double step_length() const = 0;
  // The cost of dropping the value is multiplied by this, which must be positive.
  virtual double cost_factor(ValueId value) const = 0;
};

}  // namespace ac2::internal

// The knowledge of a recorded step that a simulation gives the evictor: when each value is used next, and which values
// a search makes dearer or cheaper to drop than the rule takes them to be.
//
//   StepForesight foresight(evictor, step_length);   // 0: next uses are not known
//   evictor.consult({.foresight = &foresight});
//   foresight.set_next_use(value, time);
//   evictor.foresight_changed(value);
//
// The evictor is asked for its graph when the foresight is asked, not before, so that either may be made first.
// Threads: not thread-safe.
#pragma once

#include <limits>
#include <vector>

#include "ac2/internal/eviction/evictor.h"
#include "ac2/internal/eviction/foresight.h"

namespace ac2::internal {

class StepForesight final : public Foresight {
 public:
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  // `step_length` is the summed cost of the step's ops, or 0 if only cost factors are known.
  StepForesight(const Evictor& evictor, double step_length) : evictor_(evictor), step_length_(step_length) {}

  // The same as if this foresight had been told all that `other` was told.
  void take_over(const StepForesight& other) {
    now_ = other.now_;
    known_ = other.known_;
  }
  // kNever: the value only serves to compute others from now on.
  void set_next_use(ValueId value, double time);
  void set_cost_factor(ValueId value, double factor);
  // An op of the program has run, as opposed to a replay.
  void program_ran(double cost) { now_ += cost; }

  bool knows_uses() const override { return step_length_ > 0; }
  // For a value that only serves to compute others: when the first of those is used that must be computed again. If
  // there is none, a time farther away the longer the step has run.
  double next_use(ValueId value) const override;
  double now() const override { return now_; }
  double step_length() const override { return step_length_; }
  double cost_factor(ValueId value) const override { return known_of(value).cost_factor; }

 private:
  struct Known {
    double next_use = kNever;
    double cost_factor = 1;
  };
  Known known_of(ValueId value) const { return value < known_.size() ? known_[value] : Known(); }
  Known& known_of(ValueId value);

  const Evictor& evictor_;
  const double step_length_;
  double now_ = 0;
  std::vector<Known> known_;  // by value
};

}  // namespace ac2::internal

// A Simulation of a device that has the host's memory behind it: a value that must leave is copied there and back, or
// dropped and computed again, whichever costs less time.
//
// Copies run beside the ops, one after the other in each direction, and each takes kCopyNs and its bytes over the
// bandwidth. The step must be known (SimulatorOptions::step_known): training repeats its step.
//
// - Out: the next two copies are always under way, of values that are not used again while they could be copied out and
//   back. With recomputation those go first that cost most to compute again for their bytes; without, those that are
//   used last. A value whose copy is done may leave at once. Its copy stays valid: values never change.
// - What leaves, where there is no room: the value that costs least for its bytes and for how long they are free, as
//   EvictionRule weighs that. A value with a copy costs what of its way back does not fit beside the ops until it is
//   used, after those that are used before it. One without costs its recomputation, or waiting for the copy under way.
// - Back: the next two copies are those of the values that are used next, if their time has come. They need room beside
//   the results of each op that runs meanwhile. Where an op needs a value that is not on its way, the value is computed
//   again if that takes less time than the copy.
//
// Guaranteed: the same step and options give the same result. Threads: one at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <set>
#include <utility>
#include <vector>

#include "ac2/internal/eviction/eviction_rule.h"
#include "benchmarks/simulator/simulation.h"

namespace ac2::internal {

class OffloadSimulation final : public Simulation {
 public:
  // The time of a copy beside that of its bytes.
  static constexpr double kCopyNs = 10'000;

  OffloadSimulation(const RecordedStep& step, const StepStructure& structure, const SimulatorOptions& options);

 private:
  struct HostState {
    bool has_copy = false;
    bool leaves = false;   // its copy is on its way out
    bool arrives = false;  // or back: it is held already, and pinned
  };
  struct Copy {
    uint32_t value = 0;
    double done = 0;
  };
  // The ways to make room, each with its cost in bytes and in time.
  struct Choice {
    uint32_t value = kNoId;
    double score = 0;
  };

  void make_room(int64_t bytes, uint32_t op) override;
  void choose_way(uint32_t value) override;
  void come_here(uint32_t value) override;
  void op_ended(uint32_t op) override;

  double now() const { return result_.cost; }
  // In time of ops, from now on.
  double until_use(uint32_t value) const;
  double copy_time(uint32_t value) const;
  bool may_leave(uint32_t value) const;
  double score(uint32_t value, double cost) const;
  // The part of the way back that does not fit beside the ops.
  double cost_of_return(uint32_t value) const;

  // Notes copies that are done by now.
  void settle();
  // Starts a copy back, which is done at the time returned.
  double start_back(uint32_t value);
  // With `must`, one of a value that is soon used or small, if there is no other.
  void copy_out(bool must);
  uint32_t next_to_copy(bool must);
  // After `op`.
  void read_ahead(uint32_t op);
  bool make_room_ahead(uint32_t value, int64_t bytes);
  // The most that an op makes which runs while the value is copied.
  int64_t made_meanwhile(uint32_t value, uint32_t op) const;
  void leave(uint32_t value);
  void wait_until(double time);
  Choice best_with_copy() const;
  Choice best_to_drop();
  Choice best_to_wait_for() const;

  EvictionRule rule_;
  std::vector<HostState> host_;
  std::set<uint32_t> made_;  // values that were made and are needed, or were when last looked at
  std::deque<Copy> leaving_, arriving_;
  double out_free_ = 0, back_free_ = 0;
};

}  // namespace ac2::internal

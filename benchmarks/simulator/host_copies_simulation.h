// A Simulation of a device that has the host's memory behind it, by the rule that the library's budgets have
// (ac2/internal/eviction/host_copies.h): the evictor and HostCopies decide, without knowing the step, or with what is
// remembered of the steps before.
//
// Copies run beside the ops, one after the other in each direction. They begin when less than a share of the budget is
// free. On the way back the values that were made last come first, as in the library, which goes by what autograd has
// saved: from the first value that is brought back on, the next ones are copied ahead of their use, as long as those
// take no more than that share of the budget. It is beside the budget, as in the library.
//
// Guaranteed: the same step and options give the same result. Threads: one at a time.
#pragma once

#include <cstdint>
#include <map>
#include <set>

#include "ac2/internal/eviction/host_copies.h"
#include "benchmarks/simulator/simulation.h"

namespace ac2::internal {

class HostCopiesSimulation final : public Simulation {
 public:
  HostCopiesSimulation(const RecordedStep& step, const StepStructure& structure, const SimulatorOptions& options);

 private:
  void make_room(int64_t bytes, uint32_t op) override;
  void choose_way(uint32_t value) override;
  void come_here(uint32_t value) override;
  void op_ended(uint32_t op) override;

  double copy_time(uint32_t value) const;
  void copy_ahead(int64_t bytes);
  void read_ahead();
  // Starts a copy back, which is done at the time returned.
  double start_back(uint32_t value);

  std::set<uint32_t> on_host_;           // the value made last is the last one
  std::map<uint32_t, double> arriving_;  // ahead of use, and when they are there
  int64_t ahead_bytes_ = 0;
  double back_free_ = 0;
  bool is_coming_back_ = false;
};

}  // namespace ac2::internal

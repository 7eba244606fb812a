// Running a program plain and in regions, and saying what differs.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <string>

#include "tests/random/program.h"

namespace ac2::test {

enum class Backward { kOnce, kThreeTimes, kTwoDerivatives };

// Which of the ways to run a program a seed stands for.
struct Way {
  Setting setting;
  Backward backward = Backward::kOnce;
  c10::Device device = c10::kCPU;

  // On the CPU.
  static Way draw(uint32_t seed);
  // On `device`, with policies that offload.
  static Way draw_offloading(uint32_t seed, c10::Device device);
  // As an initializer in C++.
  std::string source() const;
};

// What was different in regions: outputs, inputs and gradients to the last bit, the default generator's state, errors,
// or a node left behind. Empty if nothing. `counts` is false, and nothing is said but of nodes, where plain autograd
// fails itself or a budget cannot be met.
struct Verdict {
  bool counts = true;
  std::string difference;
  int64_t replayed_ops = 0;
  int64_t evicted_values = 0;
  int64_t offloaded_bytes = 0;  // at the end of forward
};
// `after_plain` is called between the two runs.
Verdict compare(
    const ProgramFn& program, uint32_t input_seed, const Way& way, const std::function<void()>& after_plain = [] {});

// One run, plain or in regions, when only this matters.
struct Ended {
  std::string error;         // empty if nothing was thrown
  int64_t copied_bytes = 0;  // TraceStats's, over all regions
};
Ended run_plain(const ProgramFn& program, uint32_t input_seed, const Way& way);
Ended run_in_regions(const ProgramFn& program, uint32_t input_seed, const Way& way);
// What a run in regions must not leave: nodes beyond the `nodes_before`, an open region. Empty if it left nothing.
std::string left_behind(const Way& way, int64_t nodes_before);

}  // namespace ac2::test

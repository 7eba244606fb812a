// Running a program plain and in regions, and saying what differs.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "tests/fuzz/program.h"
#include "tests/fuzz/way.h"

namespace ac2::test {

// The differences in regions: outputs, inputs and gradients bitwise, the default generator's state, errors,
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

// The remains that a run in regions must not leave: nodes beyond the `nodes_before`, an open region. Empty if it left
// nothing.
std::string left_behind(const Way& way, int64_t nodes_before);

}  // namespace ac2::test

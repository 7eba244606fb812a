// The values of a step by the part that they play in it: results of ops of one name, of one size. A program that
// repeats itself has few kinds of many values.
//
//   for (const std::vector<uint32_t>& values : largest_kinds(step, 24)) …
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "benchmarks/simulator/step_simulator.h"

namespace ac2::internal {

// The values of the kinds with the most bytes in all, `count` kinds at most; the kind with the most comes first.
std::vector<std::vector<uint32_t>> largest_kinds(const RecordedStep& step, size_t count);

}  // namespace ac2::internal

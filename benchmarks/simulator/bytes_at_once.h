// The bytes that a recorded step has at once whatever is dropped: a bound that no budget below can meet.
//
//   if (const BytesAtOnce beyond = first_beyond(step, budget); beyond.bytes > 0) …   // cannot be met
//   least_bytes(step);   // the smallest budget that may be
//
// An op has what came from outside, its inputs and its results at once, and at the end all values that still have a
// name are there together. A budget of that many bytes may still be too small, because a replay has more at once.
//
// Threads: any.
#pragma once

#include <cstdint>

#include "benchmarks/simulator/step_simulator.h"

namespace ac2::internal {

struct BytesAtOnce {
  int64_t bytes = 0;
  uint32_t op = kNoId;  // kNoId: what comes from outside, or what is alive at the end
};

// The first time in the step at which more than `budget` bytes are there at once; 0 bytes if there is none.
BytesAtOnce first_beyond(const RecordedStep& step, int64_t budget);
// The most that is there at once.
int64_t least_bytes(const RecordedStep& step);

}  // namespace ac2::internal

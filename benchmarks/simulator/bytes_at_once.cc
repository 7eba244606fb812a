#include "benchmarks/simulator/bytes_at_once.h"

#include <algorithm>
#include <set>

#include "benchmarks/simulator/step_structure.h"

namespace ac2::internal {

namespace {

// Calls `meet` with the bytes at each op, at each value from outside and at the end, until it returns false.
template <class Meet>
void go_through(const RecordedStep& step, const Meet& meet) {
  const StepStructure structure(step);
  const auto bytes_of = [&](const auto& values) {
    int64_t bytes = 0;
    for (const uint32_t value : values) {
      bytes += structure.producer(value) != kNoId ? step.values[value].bytes : 0;
    }
    return bytes;
  };
  int64_t outside = 0;
  for (const RecordedStep::Event& event : step.events) {
    BytesAtOnce here;
    if (event.kind == RecordedStep::Event::kAppears) {
      outside += step.values[step.tensors[event.index].value].bytes;
      here = {outside};
    } else if (event.kind == RecordedStep::Event::kRuns) {
      const StepStructure::Op& op = structure.op(event.index);
      here = {outside + bytes_of(op.inputs) + op.made_bytes, event.index};
    }
    if (!meet(here)) {
      return;
    }
  }
  std::set<uint32_t> at_end;
  for (const uint32_t tensor : step.alive_at_end) {
    at_end.insert(step.tensors[tensor].value);
  }
  meet(BytesAtOnce{outside + bytes_of(at_end)});
}

}  // namespace

BytesAtOnce first_beyond(const RecordedStep& step, int64_t budget) {
  BytesAtOnce beyond;
  go_through(step, [&](const BytesAtOnce& here) {
    if (here.bytes > budget) {
      beyond = here;
    }
    return here.bytes <= budget;
  });
  return beyond;
}

int64_t least_bytes(const RecordedStep& step) {
  int64_t most = 0;
  go_through(step, [&](const BytesAtOnce& here) {
    most = std::max(most, here.bytes);
    return true;
  });
  return most;
}

}  // namespace ac2::internal

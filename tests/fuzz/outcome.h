// One run of a random program, plain or in regions, and all that must be the same in both.
#pragma once

#include <cstdint>
#include <string>

#include "tests/fuzz/program.h"
#include "tests/fuzz/way.h"

namespace ac2::test {

struct Outcome {
  Tensors tensors;    // outputs, inputs, gradients, states of the default generator; in order
  std::string error;  // empty if nothing was thrown
  int64_t replayed_ops = 0;
  int64_t evicted_values = 0;
  int64_t offloaded_bytes = 0;  // at the end of forward
  int64_t copied_bytes = 0;
};

// On inputs of its own, and with the default generator as `input_seed` says. Plain where `setting` is null.
Outcome run(const ProgramFn& program, uint32_t input_seed, const Way& way, const Setting* setting);

// On these inputs, with the derivatives by `leaves`, whose graph stays. Any thread.
Outcome run_on(const ProgramFn& program, const Tensors& inputs, const Tensors& leaves, const Way& way,
               const Setting* setting);

// A line for each thing that differs; empty if nothing does.
std::string differences(const Outcome& actual, const Outcome& expected);

// After an error LibTorch keeps the tasks that it did not come to until the thread's next backward.
void let_engine_go(c10::Device device);

}  // namespace ac2::test

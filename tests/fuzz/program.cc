#include "tests/fuzz/program.h"

#include <ATen/CPUGeneratorImpl.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <exception>
#include <string>

#include "tests/fuzz/dice.h"
#include "tests/fuzz/machine.h"
#include "tests/fuzz/steps.h"

namespace ac2::test {

Program Program::draw(uint32_t seed, int num_steps) {
  Dice dice(seed);
  Program program;
  for (int i = 0; i < num_steps; ++i) program.steps.push_back(dice.any());
  program.writes_at_end = dice.any();
  return program;
}

Tensors Program::run(const Tensors& in, Regions& regions, std::vector<std::string>* source) const {
  Machine machine(in, regions, source, limits);
  machine.begin_region();
  ProgramEnd& end = regions.program_end();
  for (size_t i = 0; i < std::min(steps.size(), end.at_step); ++i) {
    machine.begin_step(steps[i]);
    Dice dice(steps[i]);
    try {
      any_step(machine, dice);
    } catch (const c10::OutOfMemoryError&) {
      if (!end.where_memory_runs_out || machine.is_writing()) throw;
      end.ended_at = i;
      break;
    }
  }
  Tensors results = machine.results();
  if (limits.writes_outside) {
    machine.end_region();
    Dice dice(writes_at_end);
    for (int i = 0; i < 4; ++i) write_until_backward_step(machine, dice);
  }
  machine.finish();
  return results;
}

std::vector<std::string> Program::source(const Tensors& in) const {
  std::vector<std::string> lines;
  Regions none(nullptr);
  try {
    run(in, none, &lines);
  } catch (const std::exception& error) {
    lines.push_back(std::string("throw std::runtime_error(\"") + error.what() + "\");");
  }
  return lines;
}

Tensors inputs_of(uint32_t seed, c10::Device device) {
  at::Generator generator = at::detail::createCPUGenerator(seed);
  const auto make = [&](at::IntArrayRef sizes, at::ScalarType type, bool requires_grad) {
    return at::randn(sizes, generator, at::TensorOptions().dtype(type)).to(device).requires_grad_(requires_grad);
  };
  return {make({4, 4}, at::kFloat, true),  make({4}, at::kFloat, true),        make({2, 4}, at::kDouble, true),
          make({4, 4}, at::kFloat, false), make({2, 2, 4}, at::kFloat, false), make({}, at::kDouble, false)};
}

}  // namespace ac2::test

// Programs drawn at random: the same for the same seed everywhere, with regions and without.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/fuzz/machine.h"
#include "tests/fuzz/regions_switch.h"

namespace ac2::test {

using ProgramFn = std::function<Tensors(const Tensors& in, Regions& regions)>;

// Each step has a seed of its own, from which its kind and operands are drawn: a program from which steps are taken out
// is still a program.
struct Program {
  std::vector<uint32_t> steps;
  uint32_t writes_at_end = 0;  // the seed of the writes between the last region and backward
  Limits limits = {};

  static Program draw(uint32_t seed, int num_steps = 40);

  Tensors operator()(const Tensors& in, Regions& regions) const { return run(in, regions, nullptr); }
  // A line of C++ for each thing it does with `in`.
  std::vector<std::string> source(const Tensors& in) const;

 private:
  Tensors run(const Tensors& in, Regions& regions, std::vector<std::string>* source) const;
};

// The tensors that every program starts from: of several shapes and dtypes, some requiring a gradient.
Tensors inputs_of(uint32_t seed, c10::Device device = c10::kCPU);

}  // namespace ac2::test

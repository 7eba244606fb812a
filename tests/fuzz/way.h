// The ways to run a random program.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>

#include "tests/fuzz/regions_switch.h"

namespace ac2::test {

enum class Backward { kOnce, kThreeTimes, kTwoDerivatives };

// Which of the ways to run a program a seed stands for.
struct Way {
  Setting setting;
  Backward backward = Backward::kOnce;
  c10::Device device = c10::kCPU;
  ProgramEnd* end = nullptr;

  // On the CPU.
  static Way draw(uint32_t seed);
  // On `device`, with policies that offload.
  static Way draw_offloading(uint32_t seed, c10::Device device);
  // As an initializer in C++.
  std::string source() const;
};

}  // namespace ac2::test

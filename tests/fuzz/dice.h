// Numbers that are the same for the same seed everywhere: std::mt19937 is, the standard distributions are not.
#pragma once

#include <cstdint>
#include <random>

namespace ac2::test {

class Dice {
 public:
  explicit Dice(uint32_t seed) : engine_(seed) {}
  uint32_t any() { return static_cast<uint32_t>(engine_()); }
  int roll(int sides) { return static_cast<int>(any() % static_cast<uint32_t>(sides)); }

 private:
  std::mt19937 engine_;
};

}  // namespace ac2::test

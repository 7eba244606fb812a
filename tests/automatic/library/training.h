// A network of many layers that are trained with LibTorch alone, and what is printed of it: each loss to the last bit.
//
// Threads: those of different trainings may differ.
#pragma once

#include <cstdint>
#include <string>

namespace training {

struct Training {
  int64_t rows = 256;
  int64_t columns = 64;
  int layers = 16;
  int steps = 3;
  uint64_t seed = 1;
};

// One line: the losses, and a number that tells gradients apart.
std::string train(const Training& training = {});

}  // namespace training

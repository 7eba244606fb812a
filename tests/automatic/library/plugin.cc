// A library that brings LibTorch into a program.
#include <cstdio>

#include "tests/automatic/library/training.h"

extern "C" void run_plugin() {
  std::puts(training::train().c_str());
}

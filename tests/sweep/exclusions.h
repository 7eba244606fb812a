// Functions that the sweep leaves out, each with its reason, and what shows that the reason still holds.
#pragma once

#include <span>

#include "tests/sweep/case.h"

namespace ac2::test::sweep {

enum class Because {
  kNeedsNoGradient,    // its results do not, although its inputs do
  kThrows,             // plain LibTorch: in forward, or when it is differentiated
  kDiffersFromItself,  // plain LibTorch, from one call to the next
};

struct Exclusion {
  const char* name;
  const char* reason;
  Because because;
  const char* phrase;  // in what it throws
  Tensors (*inputs)();
  Out (*fn)(In);
  int newest = 99;  // minor release of LibTorch 2 up to which it is excluded
};

void PrintTo(const Exclusion& exclusion, std::ostream* out);

std::span<const Exclusion> exclusions();

}  // namespace ac2::test::sweep

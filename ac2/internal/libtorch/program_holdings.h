// The memory that a program holds by itself, which no budget may drop, in sentences: parameters, gradients, an
// optimizer's state, lists of tensors that hold graphs. Known where the language can look for it: Python.
//
//   for (const std::string& sentence : program_holdings()) …
//
// Threads: any.
#pragma once

#include <string>
#include <vector>

namespace ac2::internal {

// Empty if nobody knows. No lock may be held.
std::vector<std::string> program_holdings();

}  // namespace ac2::internal

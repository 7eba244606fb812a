// The memory that a program holds by itself, which no budget may drop, in sentences: parameters, gradients, an
// optimizer's state, lists of tensors that hold graphs. Known where the language can look for it: Python.
//
//   set_program_holdings(&what_python_holds);
//   for (const std::string& sentence : program_holdings()) …
//
// Threads: any.
#pragma once

#include <string>
#include <vector>

namespace ac2::internal {

using ProgramHoldings = std::vector<std::string> (*)();

// Called where an error is made, without a lock. The function may take its time.
void set_program_holdings(ProgramHoldings holdings);
// Empty if nobody knows.
std::vector<std::string> program_holdings();

}  // namespace ac2::internal

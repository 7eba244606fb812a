// Runs a program as a shell does, for tests of what programs print.
//
//   const Printed run = run_program("benchmarks/budget_simulator trace.log --budget 0.5");
//   EXPECT_EQ(run.status, 0) << run.output;
#pragma once

#include <string>

namespace ac2::test {

struct Printed {
  int status = 0;      // the exit status, or -1 if a signal ended the program
  std::string output;  // of both streams
};

Printed run_program(const std::string& command);

}  // namespace ac2::test

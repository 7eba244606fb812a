#include "tests/support/run_program.h"

#include <sys/wait.h>

#include <cstdio>

namespace ac2::test {

Printed run_program(const std::string& command) {
  Printed run;
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  char buffer[256];
  while (fgets(buffer, sizeof buffer, pipe) != nullptr) {
    run.output += buffer;
  }
  const int status = pclose(pipe);
  run.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return run;
}

}  // namespace ac2::test

#include "examples/passive_threads.h"

#include <stdlib.h>
#include <unistd.h>

namespace gpt {

void use_passive_threads(char** argv) {
  if (getenv("OMP_WAIT_POLICY") != nullptr) return;
  if (setenv("OMP_WAIT_POLICY", "passive", /*overwrite=*/0) != 0) return;
  // Returns only if it fails; the program then works all the same.
  execv("/proc/self/exe", argv);
}

}  // namespace gpt

// Linked into a program, gives its threads regions without a line of code (//ac2:auto, ac2::auto).
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "ac2/internal/automatic/own_regions.h"
#include "ac2/internal/automatic/variables.h"

// A symbol that CMake's ac2::auto has the linker look for, so that the archive's member is not left out.
extern "C" {
extern const bool ac2_is_linked;
}

// LibTorch's own static objects exist by now: the libraries that a program is linked to come before the program's.
extern "C" const bool ac2_is_linked = [] {
  // Tells libac2_preload.so, which would start regions a second time.
  setenv(ac2::internal::variables::kLinkedInto, std::to_string(getpid()).c_str(), 1);
  ac2::internal::start_own_regions();
  return true;
}();

// Leaks of plain LibTorch are not for LeakSanitizer to report.
#pragma once

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/lsan_interface.h>
#endif

namespace ac2::test {

// While one lives, nothing that this thread allocates counts as leaked. Around a run without regions: autograd's own
// nodes can hold each other in a circle once a tensor that one of them saved is written to in place.
#if defined(__SANITIZE_ADDRESS__)
using LeaksAreLibTorchs = __lsan::ScopedDisabler;
#else
struct LeaksAreLibTorchs {
  LeaksAreLibTorchs() {}
};
#endif

}  // namespace ac2::test

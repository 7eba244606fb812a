// Forms of a program's own that a budget of the random programs is offered. All that take a tensor are exact, so that
// gradients keep plain autograd's bits whichever of them a budget takes.
#pragma once

#include <cstdint>

#include "ac2/form.h"

namespace ac2::test {

// Some of them, beside one_bit(): which ones follows from `choice`.
Forms odd_forms(uint32_t choice);

}  // namespace ac2::test

// From a program that fails to a test that a person can read.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "tests/fuzz/compare.h"
#include "tests/fuzz/program.h"

namespace ac2::test {

// The steps without which `fails` is false, given that it is true of `program`: no further step can be taken out of the
// result. (Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", 2002.)
Program reduced(Program program, const std::function<bool(const Program&)>& fails);

// A test of `fixture` in C++ that runs the same ops and calls `judge`.
std::string as_test(const Program& program, uint32_t input_seed, const Way& way, const std::string& fixture,
                    const std::string& judge);

}  // namespace ac2::test

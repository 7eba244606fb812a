// How an error or a warning names a thing that is called otherwise in C++ and in Python.
//
//   TORCH_CHECK(…, "Make it soft (", spelled("MemoryBudget::soft", "ac2.MemoryBudget.soft"), ").");
//
// Threads: any.
#pragma once

#include <string>
#include <string_view>

namespace ac2::internal {

// "MemoryBudget::soft; in Python ac2.MemoryBudget.soft", and the other way about where Python has loaded ac2.
std::string spelled(std::string_view in_cpp, std::string_view in_python);

}  // namespace ac2::internal

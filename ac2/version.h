// The version of ac2, for programs that are built with more than one.
//
//   #if AC2_VERSION_MAJOR == 0 && AC2_VERSION_MINOR < 2
//   std::cout << "ac2 " << ac2::kVersion << "\n";  // ac2 0.1.0
//
// It is that of the headers. docs/stability.md says what a version promises. CMakeLists.txt and python/ac2/_version.py
// have the same version, to which python/tests/test_package.py holds them.
#pragma once

#include <string_view>

// Macros, because the preprocessor compares nothing else.
#define AC2_VERSION_MAJOR 0
#define AC2_VERSION_MINOR 1
#define AC2_VERSION_PATCH 0

namespace ac2 {

// MAJOR.MINOR.PATCH.
inline constexpr std::string_view kVersion = "0.1.0";

}  // namespace ac2

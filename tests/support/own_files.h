// The folder that a test may write to, and what stands in its files.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace ac2::test {

// Bazel's, which is another for each run of a test; else GoogleTest's.
inline std::string own_folder() {
  const char* const given = std::getenv("TEST_TMPDIR");
  return given == nullptr ? ::testing::TempDir() : given;
}

// Empty if there is no such file.
inline std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace ac2::test

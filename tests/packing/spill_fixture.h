// A fixture for tests of spill_to_file(): a directory of its own, in which nothing is left at the end.
#pragma once

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "policies/spill_to_file.h"
#include "tests/support/regions.h"

namespace ac2::test {

// The ways in which a result gets to its file: by the queue, through one that is always full, and past it.
inline const policies::SpillOptions kSpillOptions[] = {{}, {.queue_bytes = 5000, .file_bytes = 1}, {.queue_bytes = 0}};

// The links in /proc to the files with spilled results that this process has open.
inline std::vector<std::string> open_spill_files() {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;  // the iterator's own
    const std::string target = std::filesystem::read_symlink(entry.path(), gone);
    if (target.find("ac2-spill-") != std::string::npos) files.push_back(entry.path());
  }
  return files;
}

// With one thread: tests run side by side, and the spinning threads of several of them on few cores would take seconds
// for a product.
class SpillToFileTest : public CleanTest {
 protected:
  void SetUp() override {
    at::set_num_threads(1);
    CleanTest::SetUp();
    std::string name = ::testing::TempDir() + "/spill_to_file_test_XXXXXX";
    directory_ = ::mkdtemp(name.data());
  }
  void TearDown() override {
    CleanTest::TearDown();
    EXPECT_TRUE(std::filesystem::is_empty(directory_));
    EXPECT_TRUE(open_spill_files().empty());
    std::filesystem::remove(directory_);
  }

  Policy spilling(const std::vector<std::string>& ops, policies::SpillOptions options = {}) const {
    return policies::spill_to_file(directory_, ops, options);
  }

  std::string directory_;
};

}  // namespace ac2::test

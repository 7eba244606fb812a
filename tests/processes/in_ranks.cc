#include "tests/processes/in_ranks.h"

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "ac2/testing/run_ranks.h"

namespace ac2::test {

std::string error_in_ranks(int ranks, const std::function<void(const gpt::Job&)>& body) {
  if (testing::rank_of_environment()) {
    body(*gpt::Job::of_environment());
    return "";
  }
  const ::testing::TestInfo& test = *::testing::UnitTest::GetInstance()->current_test_info();
  try {
    // The file by which Bazel knows that a test ended too early is this process's alone.
    testing::run_ranks(ranks, {"env", "-u", "TEST_PREMATURE_EXIT_FILE", std::filesystem::read_symlink("/proc/self/exe"),
                               std::string("--gtest_filter=") + test.test_suite_name() + "." + test.name(),
                               "--gtest_output=", "--gtest_brief=1"});
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "";
}

void in_ranks(int ranks, const std::function<void(const gpt::Job&)>& body) {
  EXPECT_EQ(error_in_ranks(ranks, body), "");
}

}  // namespace ac2::test

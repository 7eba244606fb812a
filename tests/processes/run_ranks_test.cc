// Several processes of one program: who is told what, and what happens when one of them fails.
#include "ac2/testing/run_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "examples/job.h"
#include "tests/processes/in_ranks.h"
#include "tests/support/regions.h"

namespace ac2::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string error_of_ranks(int ranks, const std::vector<std::string>& command) {
  return error_of([&] { testing::run_ranks(ranks, command); });
}

TEST(RunRanksTest, EachProcessKnowsItsRank) {
  // Each rank makes a file of its own name, and fails if it is there.
  const std::string directory = ::testing::TempDir() + "run_ranks_test";
  std::filesystem::create_directory(directory);
  const std::string script =
      "set -eC; echo \"$WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE ${AC2_STORE##*/}\" > " + directory + "/$RANK";
  EXPECT_NO_THROW(testing::run_ranks(3, {"sh", "-c", script}));
  std::vector<std::string> lines;
  for (int rank = 0; rank < 3; ++rank) {
    std::getline(std::ifstream(directory + "/" + std::to_string(rank)), lines.emplace_back());
  }
  EXPECT_THAT(lines, ::testing::ElementsAre("3 0 3 store", "3 1 3 store", "3 2 3 store"));
  std::filesystem::remove_all(directory);
  EXPECT_FALSE(testing::rank_of_environment());
}

TEST(RunRanksTest, TheFirstRankThatFailsEndsTheOthersAndIsNamed) {
  // The others would sleep for a day.
  const auto fails = [](const std::string& how) {
    return error_of_ranks(3, {"sh", "-c", "if [ $RANK = 1 ]; then " + how + "; else exec sleep 86400; fi"});
  };
  EXPECT_THAT(fails("exit 7"), HasSubstr("Rank 1 of 3 ended with exit status 7"));
  EXPECT_THAT(fails("kill -9 $$"), HasSubstr("Rank 1 of 3 was killed by signal 9 (Killed)"));
}

TEST(RunRanksTest, AProgramThatIsNotThereAndAJobOfNobodyAreErrors) {
  EXPECT_THAT(error_of_ranks(2, {"/no/such/program"}),
              HasSubstr("cannot start \"/no/such/program\": No such file or directory"));
  EXPECT_THAT(error_of_ranks(0, {"true"}), HasSubstr("A job has 0 ranks; expected 1 or more"));
  EXPECT_THAT(error_of_ranks(1, {}), HasSubstr("no program"));
}

TEST(RunRanksTest, ARankThatDiesInTheMiddleOfAJobEndsThoseThatWaitForIt) {
  const std::string error = error_in_ranks(3, [](const gpt::Job& job) {
    const auto group = job.connect();
    std::vector<at::Tensor> ones = {at::ones({4})};
    group->allreduce(ones)->wait();
    if (job.rank == 2) ::raise(SIGKILL);
    // Nobody answers for rank 2. Whether this throws or waits, run_ranks() must end it.
    while (true) ::pause();
  });
  EXPECT_THAT(error, HasSubstr("Rank 2 of 3 was killed by signal 9"));
}

class JobTest : public ::testing::Test {
 protected:
  void TearDown() override {
    for (const char* const name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) ::unsetenv(name);
  }
  static std::string error() {
    return error_of([] { gpt::Job::of_environment()->connect(); });
  }
};

TEST_F(JobTest, AProcessOfNoJobTrainsAlone) {
  EXPECT_FALSE(gpt::Job::of_environment());
}

TEST_F(JobTest, VariablesThatContradictEachOtherAreNamed) {
  ::setenv("RANK", "1", 1);
  EXPECT_THAT(error(), HasSubstr("but no WORLD_SIZE"));
  ::setenv("WORLD_SIZE", "many", 1);
  EXPECT_THAT(error(), HasSubstr("WORLD_SIZE is \"many\"; expected a number"));
  ::setenv("WORLD_SIZE", "1", 1);
  EXPECT_THAT(error(), HasSubstr("RANK is \"1\"; expected a number from 0 to 0"));
  ::setenv("RANK", "0", 1);
  EXPECT_THAT(error(), HasSubstr("no MASTER_ADDR"));
  ::setenv("MASTER_ADDR", "127.0.0.1", 1);
  ::setenv("MASTER_PORT", "0", 1);
  EXPECT_THAT(error(), HasSubstr("MASTER_PORT is \"0\"; expected a number from 1 to 65535"));
}

}  // namespace
}  // namespace ac2::test

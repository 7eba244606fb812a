// Runs one program as several processes on this machine: the ranks of one job.
//
//   // In the program that is started first:
//   ac2::testing::run_ranks(4, {"/proc/self/exe", "--gtest_filter=MyTest.OfOneRank"});
//   // In each of the four:
//   const auto rank = ac2::testing::rank_of_environment();         // {2, 4}
//   c10d::FileStore store(std::getenv(ac2::testing::kStoreVariable), rank->ranks);
//
// Each process gets the variables that torchrun sets, RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE, and in
// AC2_STORE the path of a file that is there for this job alone: where the ranks find each other, without a port that
// somebody else may take. Everything else they have from the program that starts them, standard output and error
// included.
//
// Guaranteed: run_ranks() returns when all ranks have ended. No rank outlives the thread that called it. A rank that
// fails ends all others, so that none of them waits for it.
//
// Threads: any number of threads may each run a job. The caller's threads are not copied into the ranks.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace ac2::testing {

inline constexpr const char* kStoreVariable = "AC2_STORE";

// `command` is the program and its arguments; a program without a slash is looked for as a shell does. Throws
// c10::Error if `ranks` is not positive, if the program cannot be started, and if a rank ends with another status than
// 0: the error names the rank that did so first, and how it ended.
void run_ranks(int ranks, const std::vector<std::string>& command);

struct Rank {
  int rank = 0;
  int ranks = 1;
};
// Null in a process that run_ranks() has not started.
std::optional<Rank> rank_of_environment();

}  // namespace ac2::testing

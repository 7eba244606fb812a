// The memory that a process may still take, read from files as Linux writes them.
#include "ac2/internal/allocator/machine_memory.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

namespace ac2::internal {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kGiB = int64_t{1} << 30;

class MachineMemoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ =
        std::filesystem::path(::testing::TempDir()) / ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(root_);
    write("proc/meminfo", "MemTotal:       67108864 kB\nMemFree: 1 kB\nMemAvailable:   33554432 kB\nSwapFree: 0 kB\n");
  }

  void write(const std::string& name, const std::string& text) {
    std::filesystem::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << text;
  }
  void write_group(const std::string& folder, const std::string& most, int64_t used, int64_t inactive) {
    write("cgroup" + folder + "/memory.max", most + "\n");
    write("cgroup" + folder + "/memory.current", std::to_string(used) + "\n");
    write("cgroup" + folder + "/memory.stat",
          "anon 4096\ninactive_file " + std::to_string(inactive) + "\nactive_file 77\n");
  }
  MemoryRoom room() const {
    return MachineMemory({.proc = (root_ / "proc").string(), .cgroup = (root_ / "cgroup").string()}).room();
  }

  std::filesystem::path root_;
};

TEST_F(MachineMemoryTest, WithoutAnyOtherLimitItIsWhatTheMachineHasAvailableLessAReserve) {
  EXPECT_EQ(room().bytes, 32 * kGiB - kGiB);  // a 64th of 64 GiB
  EXPECT_EQ(room().reserve, kGiB);
  EXPECT_EQ(room().limit, MemoryRoom::Limit::kMachine);
  EXPECT_EQ(room().name, "MemAvailable");
  EXPECT_FALSE(room().swaps);
}

TEST_F(MachineMemoryTest, ACgroupLimitsWhatItDoesNotUse) {
  write("proc/self/cgroup", "0::/jobs/7\n");
  write_group("/jobs/7", std::to_string(2 * kGiB), kGiB, 0);
  EXPECT_EQ(room().bytes, kGiB - 32 * kMiB);
  EXPECT_EQ(room().name, "memory.max of " + (root_ / "cgroup/jobs/7").string());
}

TEST_F(MachineMemoryTest, FilePagesThatNobodyUsesAreNoUse) {
  write("proc/self/cgroup", "0::/jobs/7\n");
  write_group("/jobs/7", std::to_string(2 * kGiB), kGiB, 512 * kMiB);
  EXPECT_EQ(room().bytes, kGiB + 512 * kMiB - 32 * kMiB);
}

TEST_F(MachineMemoryTest, TheSmallestOfAllGroupsAroundItRules) {
  write("proc/self/cgroup", "0::/jobs/7\n");
  write_group("/jobs/7", "max", kGiB, 0);
  write_group("/jobs", std::to_string(4 * kGiB), 3 * kGiB, 0);
  write_group("", std::to_string(8 * kGiB), 4 * kGiB, 0);
  EXPECT_EQ(room().bytes, kGiB - 64 * kMiB);
  EXPECT_EQ(room().name, "memory.max of " + (root_ / "cgroup/jobs").string());
}

TEST_F(MachineMemoryTest, WhereTheMountBeginsAtTheContainersGroupTheMountIsAsked) {
  write("proc/self/cgroup", "0::/docker/not/seen/here\n");
  write_group("", std::to_string(2 * kGiB), kGiB, 0);
  EXPECT_EQ(room().bytes, kGiB - 32 * kMiB);
}

TEST_F(MachineMemoryTest, GroupsOfTheFirstVersionAreReadToo) {
  write("proc/self/cgroup", "4:memory:/a\n3:cpuset:/b\n");
  write("cgroup/memory/a/memory.limit_in_bytes", std::to_string(kGiB));
  write("cgroup/memory/a/memory.usage_in_bytes", std::to_string(256 * kMiB));
  write("cgroup/memory/a/memory.stat", "inactive_file 1\ntotal_inactive_file 1048576\n");
  write("cgroup/memory/memory.limit_in_bytes", "9223372036854771712");
  write("cgroup/memory/memory.usage_in_bytes", "1");
  EXPECT_EQ(room().bytes, kGiB - 255 * kMiB - 16 * kMiB);
}

TEST_F(MachineMemoryTest, WhatIsInUseBeyondALimitLeavesNothing) {
  write("proc/self/cgroup", "0::/jobs\n");
  write_group("/jobs", std::to_string(kGiB), kGiB + 1, 0);
  EXPECT_EQ(room().bytes, 0);
  EXPECT_EQ(room().reserve, 0);
}

TEST_F(MachineMemoryTest, OfTheLastBytesOfALimitTheReserveHasWhatThereIs) {
  const MemoryRoom room = MachineMemory::room_of(kGiB, kGiB - kMiB, MemoryRoom::Limit::kAddressSpace, "x");
  EXPECT_EQ(room.bytes, 0);
  EXPECT_EQ(room.reserve, kMiB);
}

TEST_F(MachineMemoryTest, TheAddressSpaceIsALimitIfItIsOne) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  rlimit limit = before;
  limit.rlim_cur = 16 * kGiB;
  ASSERT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
  rlimit now{};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &now), 0);
  if (now.rlim_cur != limit.rlim_cur) GTEST_SKIP() << "no such limit can be set here: qemu-user sets none";
  write("proc/self/statm", "1048576 7 7 7\n");  // pages
  const MemoryRoom found = room();
  // 3 GiB of the 4 are of libraries and the like, for which no reserve is needed.
  write("proc/self/status", "Name: x\nVmData:\t 1048576 kB\nVmStk: 7 kB\n");
  const MemoryRoom beside_libraries = room();
  ASSERT_EQ(setrlimit(RLIMIT_AS, &before), 0);
  EXPECT_EQ(found.bytes, 12 * kGiB - 256 * kMiB);
  EXPECT_EQ(found.limit, MemoryRoom::Limit::kAddressSpace);
  EXPECT_EQ(beside_libraries.bytes, 12 * kGiB - 13 * kGiB / 64);
  EXPECT_EQ(beside_libraries.reserve, 13 * kGiB / 64);
}

TEST_F(MachineMemoryTest, PrivateMemoryThatMayBeWrittenIsALimitIfItIsOne) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_DATA, &before), 0);
  rlimit limit = before;
  limit.rlim_cur = 16 * kGiB;
  has_address_space_limit_changed();
  EXPECT_FALSE(has_address_space_limit_changed());
  ASSERT_EQ(setrlimit(RLIMIT_DATA, &limit), 0);
  rlimit now{};
  ASSERT_EQ(getrlimit(RLIMIT_DATA, &now), 0);
  if (now.rlim_cur != limit.rlim_cur) GTEST_SKIP() << "no such limit can be set here: qemu-user sets none";
  EXPECT_TRUE(has_address_space_limit_changed());
  write("proc/self/status", "Name: x\nVmData:\t 4194304 kB\nVmStk: 7 kB\n");
  const MemoryRoom found = room();
  ASSERT_EQ(setrlimit(RLIMIT_DATA, &before), 0);
  EXPECT_EQ(found.bytes, 12 * kGiB - 256 * kMiB);
  EXPECT_EQ(found.limit, MemoryRoom::Limit::kAddressSpace);
  EXPECT_EQ(found.name, "RLIMIT_DATA");
}

TEST_F(MachineMemoryTest, WhereNothingSaysAnythingThereIsNoLimit) {
  std::filesystem::remove_all(root_);
  EXPECT_EQ(room().bytes, INT64_MAX);
  EXPECT_EQ(room().limit, MemoryRoom::Limit::kNone);
}

TEST_F(MachineMemoryTest, ThisMachineHasSome) {
  EXPECT_GT(MachineMemory().room().bytes, 0);
  EXPECT_FALSE(MachineMemory().room().name.empty());
}

}  // namespace
}  // namespace ac2::internal

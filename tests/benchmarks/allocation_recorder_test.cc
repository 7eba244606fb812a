// The allocations and frees of tensors are recorded in order, and reserved_benchmark prints what becomes of them.
#include "benchmarks/caching/allocation_recorder.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <cstdint>
#include <cstdlib>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/run_program.h"

namespace ac2::benchmarks {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

at::Tensor bytes(int64_t count) {
  return torch::empty({count}, torch::kUInt8);
}

// The sizes of what is allocated, and of what is freed as negative numbers.
std::vector<int64_t> changes(const AllocationEvents& events) {
  std::vector<int64_t> changes;
  for (const AllocationEvent& event : events) {
    if (event.bytes > 0) {
      changes.push_back(event.bytes);
      continue;
    }
    for (const AllocationEvent& made : events) {
      if (made.block == event.block && made.bytes > 0) changes.push_back(-made.bytes);
    }
  }
  return changes;
}

class AllocationRecorderTest : public ::testing::Test {
 protected:
  AllocationRecorder& recorder_ = AllocationRecorder::install();
};

TEST_F(AllocationRecorderTest, AllocationsAndFreesComeInTheirOrder) {
  const AllocationEvents events = recorder_.during([] {
    at::Tensor a = bytes(100);
    const at::Tensor b = bytes(200);
    const at::Tensor view = a.slice(0, 1, 3), nothing = bytes(0);
    a.reset();
    const at::Tensor c = bytes(300);
  });
  EXPECT_EQ(changes(events), (std::vector<int64_t>{100, 200, 300, -300, -100, -200}));
}

TEST_F(AllocationRecorderTest, WhatIsThereComesFirstAndTheRestIsNotRecorded) {
  std::optional<at::Tensor> a = bytes(100);
  bytes(50);
  const at::Tensor b = bytes(200);
  const AllocationEvents events = recorder_.during([&] { a.reset(); });
  EXPECT_EQ(changes(events), (std::vector<int64_t>{100, 200, -100}));
  EXPECT_EQ(changes(recorder_.during([] {})), (std::vector<int64_t>{200}));
}

TEST_F(AllocationRecorderTest, OtherThreadsAreRecordedToo) {
  const AllocationEvents events = recorder_.during([] {
    at::Tensor a;
    std::thread([&] { a = bytes(100); }).join();
  });
  EXPECT_EQ(changes(events), (std::vector<int64_t>{100, -100}));
}

TEST_F(AllocationRecorderTest, AnErrorEndsTheRecording) {
  EXPECT_THROW(recorder_.during([] { throw std::runtime_error("no"); }), std::runtime_error);
  EXPECT_THROW(recorder_.stop(), c10::Error);
  recorder_.start();
  EXPECT_THROW(recorder_.start(), c10::Error);
  recorder_.stop();
}

TEST_F(AllocationRecorderTest, AStepOfTrainingIsReservedAsTheAllocatorWould) {
  const at::Tensor weight = torch::ones({1024, 1024}, torch::requires_grad());  // 4 MiB
  const AllocationEvents events = recorder_.during([&] {
    const at::Tensor y = weight.exp();  // held for backward
    y.sum().backward();
  });
  const Reserved reserved = reserved_for(events, {});
  EXPECT_GE(reserved.requested_bytes, int64_t{3} * 4 << 20);
  EXPECT_EQ(reserved.reserved_bytes, int64_t{20 + 2} << 20);  // and one of 2 for the sum
}

// --- the program ---

test::Printed run(const std::string& arguments) {
  return test::run_program("benchmarks/reserved_benchmark " + arguments);
}

TEST(ReservedBenchmarkTest, EveryModelTrainsInEveryForm) {
  const test::Printed ran = run("--tiny --steps=2");
  EXPECT_EQ(ran.status, EXIT_SUCCESS) << ran.output;
  for (const char* model : {"gpt", "resnet50", "mobilenet_v2", "densenet121", "lstm"}) {
    EXPECT_THAT(ran.output, HasSubstr(model));
  }
  EXPECT_THAT(ran.output, AllOf(HasSubstr("recompute_all@step"), HasSubstr("100MiB@step")));
}

TEST(ReservedBenchmarkTest, WrongCommandLinesAreErrorsThatSayWhatIsRight) {
  for (const auto& [arguments, message] : std::vector<std::pair<std::string, std::string>>{
           {"--models=alexnet", "Unknown model \"alexnet\". Choose one of: chain, gpt"},
           {"--tiny --models=gpt --forms=recompute_some", "Unknown policy \"recompute_some\""},
           {"--tiny --models=gpt --forms=recompute_all@layer", "region is \"layer\""},
           {"--tiny --models=gpt --forms=recompute_all@loop", "around each block or each step"},
           {"--steps=0", "steps is 0"},
           {"--threads=0", "threads is 0"}}) {
    const test::Printed ran = run(arguments);
    EXPECT_EQ(ran.status, EXIT_FAILURE) << arguments;
    EXPECT_THAT(ran.output, HasSubstr(message));
  }
}

}  // namespace
}  // namespace ac2::benchmarks

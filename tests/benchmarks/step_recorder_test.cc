// Steps recorded op by op, read back as budget_simulator reads them.
#include "benchmarks/step_recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "benchmarks/dtr_trace.h"
#include "benchmarks/networks/branching_networks.h"
#include "benchmarks/simulator/step_simulator.h"
#include "tests/support/run_program.h"

namespace ac2 {
namespace {

using internal::RecordedStep;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

RecordedStep read(const std::string& trace) {
  std::istringstream lines(trace);
  absl::StatusOr<RecordedStep> step = benchmarks::read_dtr_trace(lines, "trace");
  EXPECT_TRUE(step.ok()) << step.status();
  return step.ok() ? *step : RecordedStep();
}

RecordedStep recorded(
    const std::function<void()>& step, const std::function<void()>& clear = [] {}) {
  return read(benchmarks::record_step(step, clear, /*runs=*/2));
}

std::vector<std::string> ops_of(const RecordedStep& step) {
  std::vector<std::string> names;
  for (const RecordedStep::Op& op : step.ops) {
    names.push_back(op.name);
  }
  return names;
}

TEST(StepRecorderTest, OpsStandInOrderWithWritesAndWithoutViews) {
  const at::Tensor x = at::ones({100}), w = at::ones({100});
  at::Tensor last;
  const RecordedStep step = recorded([&] {
    const at::Tensor product = x * w;
    product.view({10, 10}).add_(1);
    last = product.exp();
  });
  EXPECT_THAT(ops_of(step), ElementsAre("aten::mul", "aten::add_", "aten::exp"));
  EXPECT_EQ(step.values.size(), 2U + 3U) << "x, w, the product before and after the write, and its exponentials";
  for (const RecordedStep::Value& value : step.values) {
    EXPECT_EQ(value.bytes, 400);
  }
  EXPECT_EQ(step.alive_at_end.size(), 3U) << "x, w and the last";
  EXPECT_EQ(internal::simulate(step, {}).peak_bytes, 4 * 400) << "a write needs no room";
}

TEST(StepRecorderTest, AStorageIsReleasedWithItsLastTensor) {
  const at::Tensor x = at::ones({100});
  const RecordedStep step = recorded([&] {
    at::Tensor a = x.exp();
    const at::Tensor view = a.view({10, 10});
    a = at::Tensor();
    x.exp();
    view.exp();
  });
  EXPECT_EQ(step.alive_at_end.size(), 1U);
  EXPECT_EQ(internal::simulate(step, {}).peak_bytes, 3 * 400) << "x, a and one more";
}

TEST(StepRecorderTest, BackwardIsRecordedAndGradientsAreAliveAtTheEnd) {
  const at::Tensor x = at::ones({10}), w = at::ones({10}).requires_grad_();
  const RecordedStep step = recorded([&] { (x * w).exp().sum().backward(); }, [&] { w.mutable_grad() = at::Tensor(); });
  EXPECT_GE(step.ops.size(), 5U);
  EXPECT_EQ(step.alive_at_end.size(), 3U) << "x, w and its gradient";
  EXPECT_GT(step.cost(), 0);
}

TEST(StepRecorderTest, AStepThatRunsOtherOpsEachTimeIsAnError) {
  int run = 0;
  const at::Tensor x = at::ones({10});
  EXPECT_THROW(recorded([&] { ++run == 1 ? x.exp() : x.sin(); }), std::runtime_error);
}

test::Printed record_by_program(const std::string& arguments) {
  return test::run_program("benchmarks/record_step " + arguments);
}

TEST(RecordStepTest, RecordsANetworkSoThatItCanBeSimulated) {
  std::vector<std::string> names = peers::branching_network_names();
  names.push_back("resnet32");
  for (const std::string& name : names) {
    const test::Printed run = record_by_program(absl::StrCat("--tiny --runs=1 --model=", name));
    ASSERT_EQ(run.status, 0) << run.output;
    const RecordedStep step = read(run.output);
    EXPECT_GT(step.ops.size(), 20U) << name;
    EXPECT_EQ(internal::simulate(step, {}).cost, step.cost()) << name;
  }
}

TEST(RecordStepTest, ALongSequenceIsALongStepThatCanBeSimulated) {
  std::vector<size_t> ops;
  for (const int chunks : {1, 2, 40}) {
    const test::Printed run = record_by_program(absl::StrCat("--tiny --runs=1 --model=lstm_cells --chunks=", chunks));
    ASSERT_EQ(run.status, 0) << run.output;
    const RecordedStep step = read(run.output);
    EXPECT_EQ(internal::simulate(step, {}).cost, step.cost());
    ops.push_back(step.ops.size());
  }
  EXPECT_EQ(ops[2], ops[1] + 38 * (ops[1] - ops[0])) << "each chunk has the same ops";
  EXPECT_GT(ops[2], 4'000U);
}

TEST(RecordStepTest, ChunksOfAModelWithoutThemAreAnErrorThatListsTheModelsThatHaveThem) {
  const test::Printed run = record_by_program("--tiny --model=gpt --chunks=2");
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.output, HasSubstr("\"gpt\" has no chunks. Choose one of: lstm, lstm_cells."));
  const test::Printed negative = record_by_program("--tiny --model=lstm --chunks=-1");
  EXPECT_EQ(negative.status, 1);
  EXPECT_THAT(negative.output, HasSubstr("at least one chunk, but -1 were asked for"));
}

TEST(RecordStepTest, AnUnknownModelIsAnErrorThatListsThoseThereAre) {
  const test::Printed run = record_by_program("--model=none");
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.output, HasSubstr("Unknown model \"none\". Choose one of: chain, gpt"));
  EXPECT_THAT(run.output, HasSubstr("unet, inception, tree_lstm, gan"));
}

}  // namespace
}  // namespace ac2

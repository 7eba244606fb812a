// What is planned on meta tensors for a mesh of devices is what as many real processes hold, compute again and
// exchange.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <string>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <vector>

#include "ac2/testing/counting_allocator.h"
#include "ac2/trace.h"
#include "examples/mesh/mesh.h"
#include "tests/processes/in_ranks.h"
#include "tests/support/regions.h"

namespace ac2::test {
namespace {

using gpt::DeviceMesh;
using gpt::LargeModel;
using gpt::MeshGroups;
using gpt::StepFigures;
using Store = c10::intrusive_ptr<c10d::Store>;

constexpr int64_t kMicroBatches = 3, kBatch = 2;
// The last stage peaks in the mean of the loss. The CPU's kernel of it makes a double and a float of the number that it
// divides by. On meta tensors no kernel runs.
constexpr int64_t kMeanBytes = 8 + 4;

LargeModel small_gpt() {
  return {.name = "small GPT",
          .layers = 4,
          .dim = 16,
          .heads = 4,
          .key_heads = 4,
          .hidden = 64,
          .vocabulary = 48,  // so that a part of the embedding is not as large as a hidden state
          .context = 8,
          .dtype = at::kFloat,
          .llama = false};
}

LargeModel small_llama() {
  LargeModel model = small_gpt();
  model.name = "small Llama";
  model.key_heads = 2;
  model.hidden = 40;
  model.llama = true;
  return model;
}

struct Case {
  LargeModel model;
  DeviceMesh mesh;
  bool sequence = false;
  bool sharded = true;
};

// One process's part of a job, each time from the same parameters.
struct Trained {
  Trained(const Case& c, MeshGroups& groups)
      : before(testing::CountingAllocator::install().current_bytes()),
        stage(c.model, groups, {.device = at::kCPU, .sequence = c.sequence}),
        optimizer(stage, {.sharded = c.sharded}) {}

  StepFigures step(const gpt::Regions& regions) {
    return run_step(stage, optimizer, {.micro_batches = kMicroBatches, .batch = kBatch, .regions = regions});
  }

  int64_t before;
  gpt::Stage stage;
  gpt::MeshOptimizer optimizer;
};

std::vector<at::Tensor> copies(const gpt::Stage& stage) {
  std::vector<at::Tensor> parameters;
  for (const auto& unit : stage.units()) {
    for (const at::Tensor& parameter : unit) parameters.push_back(parameter.detach().clone());
  }
  return parameters;
}

// Checks the plan for a device with room for all, and returns one in which a micro-batch has to recompute something.
gpt::StagePlan plan_of(const Case& c, int64_t stage) {
  gpt::MeshPlanOptions options{.model = c.model,
                               .mesh = c.mesh,
                               .micro_batches = kMicroBatches,
                               .batch = kBatch,
                               .sequence = c.sequence,
                               .sharded_optimizer = c.sharded};
  const gpt::StagePlan roomy = gpt::plan_stage(options, stage);
  const StepFigures& all = roomy.steps[0].figures;
  const gpt::PlannedStep& unneeded = roomy.steps.back();
  EXPECT_EQ(unneeded.name, "the plan that fits");
  EXPECT_EQ(unneeded.summary.replayed_ops, 0);
  EXPECT_EQ(unneeded.figures.replayed_ops, 0);
  EXPECT_EQ(unneeded.figures.held_bytes, all.held_bytes);
  EXPECT_EQ(unneeded.figures.peak_bytes, all.peak_bytes);
  options.device_bytes = roomy.state_bytes() + all.peak_bytes - all.held_bytes / 3;
  return gpt::plan_stage(options, stage);
}

void expect_as_planned(const Case& c, int64_t rank, const Store& store) {
  SCOPED_TRACE(c.model.name + ", " + std::to_string(c.mesh.data) + " x " + std::to_string(c.mesh.context) + " x " +
               std::to_string(c.mesh.tensor) + " x " + std::to_string(c.mesh.pipeline) +
               (c.sequence ? ", sequence" : "") + ", rank " + std::to_string(rank));
  MeshGroups groups(c.mesh, rank, store);
  const gpt::StagePlan plan = plan_of(c, groups.place.pipeline);
  std::vector<at::Tensor> without;
  StepFigures plain;
  {
    Trained trained(c, groups);
    plain = trained.step({});
    without = copies(trained.stage);
    EXPECT_EQ(trained.optimizer.parameters(), plan.parameters);
    EXPECT_EQ(trained.optimizer.parameter_bytes(), plan.parameter_bytes);
    EXPECT_EQ(trained.optimizer.state_bytes(), plan.optimizer_bytes);
  }
  EXPECT_EQ(plain.held_bytes, plan.steps[0].figures.held_bytes);
  EXPECT_EQ(plan.steps.size(), c.sequence || c.mesh.context > 1 ? 7U : 4U);
  for (const gpt::PlannedStep& step : plan.steps) {
    SCOPED_TRACE(step.name);
    Trained trained(c, groups);
    const StepFigures real = trained.step(step.regions);
    const StepFigures& planned = step.figures;
    EXPECT_EQ(real.in_flight, planned.in_flight);
    EXPECT_EQ(real.held_bytes, planned.held_bytes);
    EXPECT_GE(real.peak_bytes, planned.peak_bytes);
    EXPECT_LE(real.peak_bytes, planned.peak_bytes + (trained.stage.is_last() ? kMeanBytes : 0));
    if (real.saved_bytes != planned.saved_bytes) {
      // On meta tensors the result of a collective is made by its op, and the op refers to what the result was made
      // from: to the embedding's parameter. A real result belongs to the process group's work until the program has
      // waited for it, and so comes from outside for the region.
      EXPECT_TRUE(step.regions.around_all && trained.stage.is_first() && c.mesh.tensor > 1);
      const int64_t embedding = trained.stage.units()[0][0].nbytes();
      EXPECT_EQ(real.saved_bytes, planned.saved_bytes - planned.in_flight * embedding);
    }
    EXPECT_EQ(real.replayed_ops, planned.replayed_ops);
    EXPECT_EQ(real.replayed_ops, kMicroBatches * step.summary.replayed_ops);
    EXPECT_EQ(real.evicted_values, 0);
    EXPECT_EQ(planned.evicted_values, 0);
    EXPECT_TRUE(real.tensor == planned.tensor);
    EXPECT_TRUE(real.context == planned.context);
    EXPECT_TRUE(real.replicas == planned.replicas);
    EXPECT_TRUE(real.pipeline == planned.pipeline);
    EXPECT_TRUE(real.tensor_in_forward == planned.tensor_in_forward);
    EXPECT_TRUE(real.tensor_in_optimizer == planned.tensor_in_optimizer);
    EXPECT_TRUE(real.context_in_forward == planned.context_in_forward);
    if (step.regions.gather_again) {
      EXPECT_EQ(real.tensor.all_gather.calls > plain.tensor.all_gather.calls, c.sequence);
      // Keys that several heads share are copied for them. Backward wants the copies, and what was gathered only where
      // the copies are made again.
      EXPECT_GE(real.context.all_gather.calls, plain.context.all_gather.calls);
      if (c.model.key_heads == c.model.heads || step.name.starts_with("recompute_all")) {
        EXPECT_EQ(real.context.all_gather.calls > plain.context.all_gather.calls, c.mesh.context > 1);
      }
    } else {
      EXPECT_TRUE(real.tensor == plain.tensor);
      EXPECT_TRUE(real.context == plain.context);
    }
    EXPECT_EQ(real.loss, plain.loss);
    const std::vector<at::Tensor> parameters = copies(trained.stage);
    for (size_t i = 0; i < parameters.size(); ++i) EXPECT_TRUE(same_bits(parameters[i], without[i])) << i;
  }
  EXPECT_GT(plan.steps.back().figures.replayed_ops, 0);
  EXPECT_LT(plan.steps.back().figures.held_bytes, plan.steps[0].figures.held_bytes);
  EXPECT_EQ(live_node_count(), 0);
}

// The mean losses of two steps, over all processes that have one, are those of one process that does all.
void expect_losses_of_one_process(const Case& c, int64_t rank, const Store& store) {
  SCOPED_TRACE(c.model.name);
  MeshGroups groups(c.mesh, rank, store), alone(DeviceMesh{}, gpt::MeshPlace{});
  Trained trained(c, groups), whole(c, alone);
  for (int step = 0; step < 2; ++step) {
    const double loss = trained.step({.by_layer = "recompute_all"}).loss;
    const double mean =
        groups.replicas.all_reduce(at::full({1}, loss)).item<double>() / static_cast<double>(groups.replicas.size());
    const double expected =
        run_step(whole.stage, whole.optimizer, {.micro_batches = c.mesh.data * kMicroBatches, .batch = kBatch}).loss;
    if (trained.stage.is_last()) {
      EXPECT_NEAR(mean, expected, 1e-4) << step;
    }
  }
}

void expect_all(const gpt::Job& job, const std::vector<Case>& cases) {
  // Before any tensor, so that each is counted.
  testing::CountingAllocator::install();
  gpt::MetaMemory::install();
  at::set_num_threads(1);
  const Store store = job.store();
  int number = 0;
  const auto own_store = [&] {
    return c10::make_intrusive<c10d::PrefixStore>("case" + std::to_string(number++), store);
  };
  for (const Case& c : cases) {
    expect_as_planned(c, job.rank, own_store());
    expect_losses_of_one_process(c, job.rank, own_store());
  }
}

TEST(MeshPlanTest, ThePlanThatFitsFits) {
  // Many micro-batches in flight, whose inputs the program holds, and little that a replay takes.
  gpt::MeshPlanOptions options{
      .model = small_gpt(), .mesh = {.tensor = 4, .pipeline = 8}, .micro_batches = 8, .batch = kBatch};
  options.model.layers = 24;
  for (const int64_t stage : {0, 1, 4, 7}) {
    options.device_bytes = int64_t{1} << 40;
    const gpt::StagePlan roomy = gpt::plan_stage(options, stage);
    for (const int64_t percent : {95, 90, 80}) {
      options.device_bytes = roomy.state_bytes() + roomy.steps[0].figures.peak_bytes * percent / 100;
      const gpt::StagePlan plan = gpt::plan_stage(options, stage);
      EXPECT_EQ(plan.steps.back().name, "the plan that fits") << stage << ", " << percent;
      EXPECT_LE(plan.state_bytes() + plan.steps.back().figures.peak_bytes, options.device_bytes)
          << stage << ", " << percent;
    }
  }
}

TEST(MeshPlanTest, TwoProcessesHoldReplayAndExchangeWhatIsPlanned) {
  in_ranks(2, [](const gpt::Job& job) {
    expect_all(job, {{.model = small_gpt(), .mesh = {.tensor = 2}},
                     {.model = small_llama(), .mesh = {.tensor = 2}, .sequence = true},
                     {.model = small_gpt(), .mesh = {.data = 2}, .sharded = false},
                     {.model = small_llama(), .mesh = {.data = 2}},
                     {.model = small_gpt(), .mesh = {.context = 2}},
                     {.model = small_llama(), .mesh = {.pipeline = 2}}});
  });
}

TEST(MeshPlanTest, FourProcessesHoldReplayAndExchangeWhatIsPlanned) {
  in_ranks(4, [](const gpt::Job& job) {
    expect_all(job, {{.model = small_gpt(), .mesh = {.tensor = 2, .pipeline = 2}, .sequence = true},
                     {.model = small_llama(), .mesh = {.data = 2, .tensor = 2}},
                     {.model = small_gpt(), .mesh = {.data = 2, .pipeline = 2}},
                     {.model = small_llama(), .mesh = {.context = 2, .tensor = 2}, .sequence = true},
                     {.model = small_gpt(), .mesh = {.data = 2, .context = 2}},
                     {.model = small_llama(), .mesh = {.context = 2, .pipeline = 2}},
                     {.model = small_llama(), .mesh = {.pipeline = 4}}});
  });
}

}  // namespace
}  // namespace ac2::test

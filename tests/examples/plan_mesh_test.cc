// The plan of a large model on a mesh: its figures follow from the sizes. mesh_plan_test compares them with processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "examples/mesh/plan_mesh.h"

namespace gpt {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

MeshPlanOptions gpt3_on_1024() {
  return {.model = gpt3_175b(), .mesh = {.data = 16, .tensor = 8, .pipeline = 8}, .micro_batches = 4};
}

TEST(DeviceMeshTest, RanksCountAlongTensorThenContextThenDataThenPipeline) {
  const DeviceMesh mesh{.data = 3, .tensor = 2, .pipeline = 4};
  for (int64_t rank = 0; rank < mesh.ranks(); ++rank) EXPECT_EQ(rank_of(mesh, place_of(mesh, rank)), rank);
  const MeshPlace place = place_of(mesh, 9);
  EXPECT_EQ(place.tensor, 1);
  EXPECT_EQ(place.data, 1);
  EXPECT_EQ(place.pipeline, 1);
  EXPECT_THAT(mesh.ranks_along(MeshAxis::kTensor, place), ElementsAre(8, 9));
  EXPECT_THAT(mesh.ranks_along(MeshAxis::kData, place), ElementsAre(7, 9, 11));
  EXPECT_THAT(mesh.ranks_along(MeshAxis::kPipeline, place), ElementsAre(3, 9, 15, 21));
  EXPECT_THROW(place_of(mesh, 24), c10::Error);
  // Lines of 2 that begin with an even rank, of 5 ranks from one end to the other, and of 19.
  EXPECT_TRUE(is_within_nodes(mesh, MeshAxis::kTensor, 2));
  EXPECT_FALSE(is_within_nodes(mesh, MeshAxis::kTensor, 3));
  EXPECT_TRUE(is_within_nodes(mesh, MeshAxis::kData, 6));
  EXPECT_FALSE(is_within_nodes(mesh, MeshAxis::kData, 4));
  EXPECT_FALSE(is_within_nodes(mesh, MeshAxis::kPipeline, 12));
  EXPECT_TRUE(is_within_nodes(mesh, MeshAxis::kPipeline, 24));
  const DeviceMesh parts{.data = 3, .context = 4, .tensor = 2, .pipeline = 2};
  for (int64_t rank = 0; rank < parts.ranks(); ++rank) EXPECT_EQ(rank_of(parts, place_of(parts, rank)), rank);
  const MeshPlace part = place_of(parts, 37);
  EXPECT_THAT(parts.ranks_along(MeshAxis::kTensor, part), ElementsAre(36, 37));
  EXPECT_THAT(parts.ranks_along(MeshAxis::kContext, part), ElementsAre(33, 35, 37, 39));
  EXPECT_THAT(parts.ranks_along(MeshAxis::kData, part), ElementsAre(29, 37, 45));
  EXPECT_THAT(parts.ranks_along(MeshAxis::kPipeline, part), ElementsAre(13, 37));
  EXPECT_THAT(parts.ranks_along(MeshAxis::kReplicas, part),
              ElementsAre(25, 27, 29, 31, 33, 35, 37, 39, 41, 43, 45, 47));
  EXPECT_THROW(place_of({.data = 0}, 0), c10::Error);
}

TEST(DeviceMeshTest, StagesInTheMiddleHaveTheLayersThatAreLeftOver) {
  std::vector<int64_t> counts;
  int64_t next = 0;
  for (int64_t stage = 0; stage < 16; ++stage) {
    const LayerRange range = layers_of_stage(126, 16, stage);
    EXPECT_EQ(range.first, next);
    next += range.count;
    counts.push_back(range.count);
  }
  EXPECT_EQ(next, 126);
  EXPECT_THAT(counts, ElementsAre(7, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 7));
  EXPECT_THROW(layers_of_stage(3, 4, 0), c10::Error);
}

TEST(PlanMeshTest, AStageOfGpt3HoldsAndExchangesWhatItsSizesSay) {
  const StagePlan plan = plan_stage(gpt3_on_1024(), 5);
  const int64_t d = 12288, tokens = 2048, devices = 8, layers = 12;
  EXPECT_EQ(plan.layers, layers);
  EXPECT_EQ(plan.parameters, layers * (12 * d * d / devices + 7 * d / devices + 6 * d));
  EXPECT_EQ(plan.parameter_bytes, 2 * plan.parameters);
  EXPECT_EQ(plan.optimizer_bytes,
            12 * plan.parameters / 16);  // a sixteenth each of the weights in float and two moments

  const StepFigures& none = plan.steps[0].figures;
  EXPECT_EQ(none.in_flight, 3);
  // Forward and backward of each layer have two all-reduces each.
  EXPECT_EQ(none.tensor.all_reduce, (Exchanged{.calls = 4 * 4 * layers, .bytes = 4 * 4 * layers * 2 * tokens * d}));
  EXPECT_EQ(none.replicas.reduce_scatter, (Exchanged{.calls = layers, .bytes = plan.parameter_bytes}));
  EXPECT_EQ(none.replicas.all_gather, none.replicas.reduce_scatter);
  EXPECT_EQ(none.pipeline.sent, (Exchanged{.calls = 2 * 4, .bytes = 2 * 4 * 2 * tokens * d}));
  EXPECT_EQ(none.pipeline.received, none.pipeline.sent);
  // In two bytes: both norms' inputs and results; split over the devices, queries, keys, values and what is attended
  // to, and the hidden layer before and after gelu. In four: both norms' means and deviations, and attention's sums.
  const int64_t layer = 2 * tokens * (4 * d + (4 + 8) * d / devices) + 4 * tokens * (4 + 96 / devices);
  // The tensor that was sent last has not been received for sure, and is kept.
  EXPECT_EQ(none.held_bytes, 3 * layers * layer + 2 * tokens * d);

  const StepFigures& full = plan.steps[2].figures;
  EXPECT_EQ(full.tensor, none.tensor);
  // Of each layer its input, and what its first all-reduce gave, because collectives are not repeated.
  EXPECT_EQ(full.held_bytes, 3 * layers * 2 * 2 * tokens * d + 2 * tokens * d);
}

TEST(PlanMeshTest, ThePlanThatFitsReplaysLessThanRecomputingLayers) {
  MeshPlanOptions options = gpt3_on_1024();
  options.device_bytes = int64_t{24} << 30;
  const StagePlan plan = plan_stage(options, 0);
  const PlannedStep &full = plan.steps[2], &chosen = plan.steps.back();
  EXPECT_EQ(chosen.name, "the plan that fits");
  EXPECT_LE(plan.state_bytes() + chosen.figures.peak_bytes, options.device_bytes);
  EXPECT_GT(plan.state_bytes() + plan.steps[0].figures.peak_bytes, options.device_bytes);
  EXPECT_GT(chosen.summary.replay_cost, 0);
  EXPECT_LT(chosen.summary.replay_cost, full.summary.replay_cost);
}

// Both kinds of plan fit. Over a slow link replaying takes less time than gathering again, and over a fast one more.
TEST(PlanMeshTest, APlanGathersAgainWhereThatTakesLessTimeThanReplaying) {
  MeshPlanOptions options{
      .model = llama3_405b(), .mesh = {.tensor = 8, .pipeline = 2}, .micro_batches = 2, .sequence = true};
  options.model.layers = 4;
  const StagePlan without = plan_stage(options, 0);
  EXPECT_EQ(without.steps.back().name, "the plan that fits");  // all of it fits, so that nothing is gathered again
  EXPECT_EQ(without.steps.back().summary.replay_cost, 0);
  const StepFigures &none = without.steps[0].figures, &again = without.steps[3].figures;
  options.device_bytes = without.state_bytes() + (none.peak_bytes + again.peak_bytes) / 2;
  options.link_bytes = 1e9;
  const PlannedStep slow = plan_stage(options, 0).steps.back();
  EXPECT_EQ(slow.name, "the plan that fits");
  EXPECT_GT(slow.summary.replay_cost, 0);
  options.link_bytes = 1e15;
  const PlannedStep fast = plan_stage(options, 0).steps.back();
  EXPECT_EQ(fast.name, "the plan that fits, gathers");
  EXPECT_LT(fast.summary.replay_cost, slow.summary.replay_cost);
  EXPECT_GT(fast.figures.tensor.all_gather.calls, slow.figures.tensor.all_gather.calls);
}

// Three stages of 1, 2 and 1 layers: the first one waits for the second one.
TEST(PlanMeshTest, AStageThatWaitsHasAPlanThatHoldsLessForTheTimeOfOneMicroBatch) {
  MeshPlanOptions options{.model = llama3_405b(), .mesh = {.tensor = 8, .pipeline = 3}, .micro_batches = 8};
  options.model.layers = 4;
  const MeshPlan plan = plan_mesh(options);
  for (const StagePlan& stage : plan.stages) {
    EXPECT_EQ(plan.chosen[stage.stage].name, "the plan that fits");
    EXPECT_EQ(plan.chosen[stage.stage].summary.replay_cost, 0);
  }
  EXPECT_GT(plan.times.waits[0], plan.times.waits[1]);
  const auto replays = [&](int64_t stage) {
    return plan.stages[stage].steps[2].times.backward - plan.stages[stage].steps[0].times.backward;
  };
  const double rounding = 1e-9 * plan.times.step;
  EXPECT_NEAR(adds_to_step(plan, 0, plan.stages[0].steps[2]), replays(0), rounding);
  // Nearly all of it: the pipeline's beginning and end hide a part.
  const double slow = adds_to_step(plan, 1, plan.stages[1].steps[2]);
  EXPECT_GT(slow, 7 * replays(1));
  EXPECT_LT(slow, 8 * replays(1) + rounding);
  EXPECT_NEAR(times_of_variant(plan, 0).step, plan.times.step, rounding);
  EXPECT_GT(times_of_variant(plan, 2).step, plan.times.step + slow - rounding);

  options.spare = 0.02;
  const MeshPlan spares = plan_mesh(options);
  EXPECT_EQ(spares.chosen[0].name, "a smaller plan");
  EXPECT_LT(spares.chosen[0].figures.peak_bytes, plan.chosen[0].figures.peak_bytes);
  EXPECT_GT(spares.chosen[0].summary.replay_cost, 0);
  EXPECT_LE(spares.times.step, plan.times.step * 1.02 + rounding);
  // Each of its micro-batches replays, and the step takes as much longer as two of them, or less.
  EXPECT_LT(adds_to_step(plan, 0, spares.chosen[0]),
            2 * (spares.chosen[0].times.backward - plan.chosen[0].times.backward));
}

// Copies hide behind the step where the host's memory has room for them, and a part of them where it has less.
TEST(PlanMeshTest, PlansCopyNoMoreThanTheHostHasRoomFor) {
  MeshPlanOptions options{.model = gpt3_175b(), .mesh = {.tensor = 8, .pipeline = 2}, .micro_batches = 2};
  options.model.layers = 4;
  const StagePlan roomy = plan_stage(options, 0);
  const StepFigures &none = roomy.steps[0].figures, &full = roomy.steps[2].figures;
  options.device_bytes = roomy.state_bytes() + (none.peak_bytes + 3 * full.peak_bytes) / 4;
  const PlannedStep replays = plan_stage(options, 0).steps.back();
  EXPECT_EQ(replays.name, "the plan that fits");
  EXPECT_GT(replays.summary.replay_cost, 0);
  EXPECT_EQ(replays.host_bytes, 0);

  options.host_bytes = int64_t{1} << 40;
  const StagePlan copies = plan_stage(options, 0);
  EXPECT_FALSE(copies.beyond_host);
  EXPECT_EQ(copies.steps.back().name, "the plan that fits, copies");
  EXPECT_LT(copies.steps.back().times.backward, replays.times.backward);
  EXPECT_GT(copies.steps.back().host_bytes, 0);
  EXPECT_LT(copies.steps.back().figures.held_bytes, none.held_bytes);

  options.host_bytes = copies.steps.back().host_bytes * 8;
  EXPECT_EQ(host_bytes_of_device(options), copies.steps.back().host_bytes);
  EXPECT_EQ(plan_stage(options, 0).steps.back().host_bytes, copies.steps.back().host_bytes);
  options.host_bytes -= 8;
  const StagePlan less = plan_stage(options, 0);
  ASSERT_TRUE(less.beyond_host);
  EXPECT_EQ(less.beyond_host->host_bytes, copies.steps.back().host_bytes);
  EXPECT_LE(less.steps.back().host_bytes, host_bytes_of_device(options));
  options.host_bytes = 8;
  const StagePlan nothing = plan_stage(options, 0);
  ASSERT_TRUE(nothing.beyond_host);
  EXPECT_EQ(nothing.steps.back().name, "the plan that fits");
  EXPECT_EQ(nothing.steps.back().times.backward, replays.times.backward);
  // A node of 16 devices has all of this mesh, and a larger one no more.
  options.host_bytes = 4800;
  options.devices_per_node = 16;
  EXPECT_EQ(host_bytes_of_device(options), 300);
  options.devices_per_node = 32;
  EXPECT_EQ(host_bytes_of_device(options), 300);
}

TEST(PlanMeshTest, PrintsATableForEachVariant) {
  MeshPlanOptions options{.model = llama3_405b(), .mesh = {.tensor = 8, .pipeline = 2}, .sequence = true};
  options.model.layers = 3;
  std::ostringstream out;
  print_mesh_plan(out, plan_mesh(options));
  EXPECT_THAT(out.str(),
              HasSubstr("Llama-3 405B, BFloat16, on 16 devices: 1 (data) x 1 (context) x 8 (tensor) x 2 (pipeline)"));
  EXPECT_THAT(out.str(), HasSubstr("recompute_all, gathers"));
  EXPECT_THAT(out.str(), HasSubstr("With the plan of each stage that is named here a step takes"));
}

TEST(PlanMeshTest, NamesModelsThatAMeshCannotShare) {
  MeshPlanOptions options = gpt3_on_1024();
  options.mesh.tensor = 7;
  try {
    plan_stage(options, 0);
    FAIL();
  } catch (const c10::Error& error) {
    EXPECT_THAT(std::string(error.what_without_backtrace()), HasSubstr("7 devices, which cannot share key_heads 96"));
  }
  EXPECT_THROW(large_model_by_name("gpt5"), c10::Error);
}

}  // namespace
}  // namespace gpt

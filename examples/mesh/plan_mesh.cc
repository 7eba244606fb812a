#include "examples/mesh/plan_mesh.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace gpt {
namespace {

// Sums of the same times in another order differ by less.
constexpr double kRounding = 1e-9;
// A stage has a smaller plan looked for if its backward may be longer by this share of the step.
constexpr double kLeastShare = 1e-6;
// Halvings of a range of times.
constexpr int kHalvings = 40;

std::vector<StageTimes> times_of(const std::vector<PlannedStep>& steps) {
  std::vector<StageTimes> times;
  for (const PlannedStep& step : steps) times.push_back(step.times);
  return times;
}

// The longest backward of a stage with which the step takes `limit` or less; at least the backward that is given.
double longest_backward(std::vector<StageTimes> times, int64_t stage, int64_t micro_batches, double limit) {
  double fits = times[stage].backward, is_too_long = fits + limit;
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = (fits + is_too_long) / 2;
    times[stage].backward = middle;
    (pipeline_times(times, micro_batches).step <= limit ? fits : is_too_long) = middle;
  }
  return fits;
}

// Of the variants and plans of a stage the one that peaks lowest, of those that take no longer in forward and in the
// optimizer, and `backward` or less in a backward.
PlannedStep smallest_within(const MeshPlan& plan, int64_t stage, double backward) {
  const StagePlan& of_stage = plan.stages[stage];
  PlannedStep best = plan.chosen[stage];
  for (const PlannedStep& step : of_stage.steps) {
    const bool is_in_time = step.times.forward <= best.times.forward && step.times.after <= best.times.after &&
                            step.times.backward <= backward;
    if (is_in_time && step.figures.peak_bytes < best.figures.peak_bytes) best = step;
  }
  std::optional<PlannedStep> smaller = smaller_plan(plan.options, of_stage, best, backward);
  return smaller ? *std::move(smaller) : best;
}

}  // namespace

MeshPlan plan_mesh(const MeshPlanOptions& options) {
  check_mesh(options.mesh);
  TORCH_CHECK(options.spare >= 0, "spare is ", options.spare, "; it must be 0 or a share of a step's time.");
  MeshPlan plan{.options = options, .stages = {}, .chosen = {}, .times = {}};
  const int64_t stages = options.mesh.pipeline;
  for (int64_t stage = 0; stage < stages; ++stage) {
    plan.stages.push_back(plan_stage(options, stage));
    plan.chosen.push_back(plan.stages.back().steps.back());
  }
  const double least = pipeline_times(times_of(plan.chosen), options.micro_batches).step;
  for (int64_t stage = 0; stage < stages; ++stage) {
    // What a stage leaves is there for the next ones.
    const double share = options.spare * static_cast<double>(stage + 1) / static_cast<double>(stages);
    const double now = plan.chosen[stage].times.backward;
    const double longest =
        longest_backward(times_of(plan.chosen), stage, options.micro_batches, least * (1 + share + kRounding));
    if (longest - now > kLeastShare * least) plan.chosen[stage] = smallest_within(plan, stage, longest);
  }
  plan.times = pipeline_times(times_of(plan.chosen), options.micro_batches);
  return plan;
}

PipelineTimes times_of_variant(const MeshPlan& plan, size_t i) {
  std::vector<StageTimes> times;
  for (const StagePlan& stage : plan.stages) times.push_back(stage.steps.at(i).times);
  return pipeline_times(times, plan.options.micro_batches);
}

double adds_to_step(const MeshPlan& plan, int64_t stage, const PlannedStep& step) {
  std::vector<StageTimes> times = times_of(plan.chosen);
  times.at(stage) = step.times;
  return pipeline_times(times, plan.options.micro_batches).step - plan.times.step;
}

}  // namespace gpt

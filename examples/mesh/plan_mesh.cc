#include "examples/mesh/plan_mesh.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "examples/mesh/backward_later.h"
#include "examples/mesh/meta_memory.h"

namespace gpt {

namespace {

bool all_ops(const ac2::StepPlanner::Op&) {
  return true;
}

class StagePlanner {
 public:
  StagePlanner(const MeshPlanOptions& options, int64_t stage)
      : options_(options),
        groups_(options.mesh, {.data = 0, .tensor = 0, .pipeline = stage}),
        stage_(options.model, groups_, {.device = c10::Device(at::kMeta), .sequence = options.sequence}),
        optimizer_(stage_, {.sharded = options.sharded_optimizer}),
        gathers_(options.sequence && options.mesh.tensor > 1) {}

  StagePlan plan() {
    StagePlan plan{.stage = groups_.place.pipeline,
                   .layers = stage_.layers().count,
                   .parameters = optimizer_.parameters(),
                   .parameter_bytes = optimizer_.parameter_bytes(),
                   .gradient_bytes = optimizer_.parameter_bytes(),
                   .optimizer_bytes = optimizer_.state_bytes(),
                   .steps = {}};
    for (const bool again : gathers_ ? std::vector<bool>{false, true} : std::vector<bool>{false}) {
      for (const auto& [name, policy] :
           std::vector<std::pair<std::string, ac2::Policy>>{{"no recomputation", ac2::CheckpointPolicy::PREFER_SAVE},
                                                            {"save_compute_intensive", "save_compute_intensive"},
                                                            {"recompute_all", "recompute_all"}}) {
        plan.steps.push_back(by_layer(again ? name + ", gathers" : name, policy, again));
      }
    }
    plan.steps.push_back(within_device(plan));
    return plan;
  }

 private:
  // One region around all. Backward is recorded too: ops that take several saved tensors hold them all until they are
  // done, which a planner that only sees forward cannot know.
  ac2::StepPlanner planner(const Regions& regions) const {
    const std::vector<int64_t> sizes = {options_.model.context, options_.batch};
    const auto words = stage_.hidden_options().dtype(at::kLong);
    at::Tensor targets = stage_.is_last() ? at::empty(sizes, words) : at::Tensor();
    const at::Tensor input =
        stage_.is_first() ? at::empty(sizes, words)
                          : at::empty(stage_.hidden_sizes(options_.batch), stage_.hidden_options()).requires_grad_();
    return ac2::StepPlanner([&] {
      // As in pipeline_step.cc the targets are let go after forward, and the input after backward.
      const BackwardLater backward(forward_in_regions(stage_, input, std::exchange(targets, {}), regions, nullptr));
      backward.run(at::ones(backward.sizes(), backward.options()));
    });
  }

  PlannedStep step(std::string name, Regions regions, ac2::PlanSummary summary) {
    StepFigures figures = run_step(
        stage_, optimizer_, {.micro_batches = options_.micro_batches, .batch = options_.batch, .regions = regions});
    return {std::move(name), std::move(regions), figures, summary};
  }

  PlannedStep by_layer(std::string name, const ac2::Policy& policy, bool gather_again) {
    const Regions regions{.by_layer = policy, .gather_again = gather_again};
    ac2::StepPlanner planner = this->planner(regions);
    return step(std::move(name), regions, planner.summarize(all_ops));
  }

  // The bytes of tensors besides those that regions hold are known from the steps before: what the program holds of the
  // micro-batches in flight, and what comes on top of all that is held.
  PlannedStep within_device(const StagePlan& plan) {
    const int64_t in_flight = gpt::in_flight(stage_, options_.micro_batches);
    const PlannedStep& none = plan.steps[0];
    const int64_t of_program = none.figures.held_bytes - in_flight * none.summary.forward_bytes;
    int64_t on_top = 0;
    for (const PlannedStep& step : plan.steps) {
      on_top = std::max(on_top, step.figures.peak_bytes - step.figures.held_bytes);
    }
    const int64_t budget = (options_.device_bytes - plan.state_bytes() - of_program - on_top) / in_flight;
    Regions regions;
    ac2::StepPlanner planner = this->planner(regions);
    // The smallest plan takes a search that is not needed where all fits.
    std::optional<ac2::Plan> smallest;
    if (planner.summarize(all_ops).peak_bytes > budget) smallest = planner.smallest();
    const bool fits = !smallest || budget >= smallest->summary().peak_bytes;
    ac2::Plan chosen = fits ? planner.plan(budget) : *std::move(smallest);
    regions.around_all = chosen;
    return step(fits ? "the plan that fits" : "the smallest plan", std::move(regions), chosen.summary());
  }

  const MeshPlanOptions& options_;
  MeshGroups groups_;
  Stage stage_;
  MeshOptimizer optimizer_;
  bool gathers_;  // whether there are all-gathers within layers
};

}  // namespace

StagePlan plan_stage(const MeshPlanOptions& options, int64_t stage) {
  check_mesh(options.mesh);
  MetaMemory::install();
  return StagePlanner(options, stage).plan();
}

MeshPlan plan_mesh(const MeshPlanOptions& options) {
  check_mesh(options.mesh);
  MeshPlan plan{.options = options, .stages = {}};
  for (int64_t stage = 0; stage < options.mesh.pipeline; ++stage) plan.stages.push_back(plan_stage(options, stage));
  return plan;
}

}  // namespace gpt

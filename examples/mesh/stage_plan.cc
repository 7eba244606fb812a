#include "examples/mesh/stage_plan.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "examples/mesh/backward_later.h"
#include "examples/mesh/meta_memory.h"

namespace gpt {

namespace {

// How often a plan is made for a device before it counts as one that does not fit.
constexpr int kTries = 8;
// Halvings of the bytes between a plan and the smallest one.
constexpr int kSmallerTries = 6;

bool all_ops(const ac2::StepPlanner::Op&) {
  return true;
}

// How many operations a product has for each unit of the planner's modelled costs.
double operations_of_a_cost() {
  static const double operations = [] {
    constexpr int64_t kSize = 4096;
    const auto meta = at::TensorOptions().device(at::kMeta);
    const at::Tensor x = at::empty({kSize, kSize}, meta).requires_grad_();
    const at::Tensor gradient = at::empty({kSize, kSize}, meta);
    ac2::StepPlanner planner([&] { BackwardLater(x.mm(x).mm(x)).run(gradient); });
    return 2 * 2 * std::pow(static_cast<double>(kSize), 3) / planner.summarize(all_ops).forward_cost;
  }();
  return operations;
}

class StagePlanner {
 public:
  StagePlanner(const MeshPlanOptions& options, int64_t stage)
      : options_(options),
        groups_(options.mesh, {.pipeline = stage}),
        stage_(options.model, groups_, {.device = c10::Device(at::kMeta), .sequence = options.sequence}),
        optimizer_(stage_, {.sharded = options.sharded_optimizer}),
        in_flight_(most_in_flight(options.mesh.pipeline, stage, options.micro_batches)),
        gathers_((options.sequence && options.mesh.tensor > 1) || options.mesh.context > 1) {}

  StagePlan plan() {
    StagePlan plan{.stage = groups_.place.pipeline,
                   .layers = stage_.layers().count,
                   .parameters = optimizer_.parameters(),
                   .parameter_bytes = optimizer_.parameter_bytes(),
                   .gradient_bytes = optimizer_.parameter_bytes(),
                   .optimizer_bytes = optimizer_.state_bytes(),
                   .steps = {}};
    for (const bool again : with_and_without_gathering_again()) {
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

  std::optional<PlannedStep> smaller(const PlannedStep& than, double seconds) {
    std::optional<PlannedStep> best;
    for (const bool again : with_and_without_gathering_again()) {
      const Regions regions{.gather_again = again};
      ac2::StepPlanner planner = this->planner(regions);
      int64_t is_large = bytes_in_flight(than.summary), is_slow = bytes_in_flight(planner.smallest().summary());
      for (int i = 0; i < kSmallerTries && is_slow < is_large; ++i) {
        const int64_t bytes = is_slow + (is_large - is_slow) / 2;
        PlannedStep made = planned("a smaller plan", regions, planner.plan(bytes));
        if (made.times.backward > seconds) {
          is_slow = bytes + 1;
          continue;
        }
        is_large = bytes;
        if (made.figures.peak_bytes < (best ? *best : than).figures.peak_bytes) best = std::move(made);
      }
    }
    return best;
  }

 private:
  // One region around all. Backward is recorded too: ops that take several saved tensors hold them all until they are
  // done, which a planner that only sees forward cannot know.
  ac2::StepPlanner planner(const Regions& regions) const {
    const std::vector<int64_t> sizes = {stage_.own_tokens(), options_.batch};
    const auto words = stage_.hidden_options().dtype(at::kLong);
    at::Tensor targets = stage_.is_last() ? at::empty(sizes, words) : at::Tensor();
    const at::Tensor input =
        stage_.is_first() ? at::empty(sizes, words)
                          : at::empty(stage_.hidden_sizes(options_.batch), stage_.hidden_options()).requires_grad_();
    return ac2::StepPlanner(
        [&] {
          // As in pipeline_step.cc the targets are let go after forward, and the input after backward.
          const BackwardLater backward(forward_in_regions(stage_, input, std::exchange(targets, {}), regions, nullptr));
          backward.run(at::ones(backward.sizes(), backward.options()));
        },
        {.in_flight = in_flight_});
  }

  PlannedStep step(std::string name, Regions regions, ac2::PlanSummary summary) {
    StepFigures figures = run_step(
        stage_, optimizer_, {.micro_batches = options_.micro_batches, .batch = options_.batch, .regions = regions});
    const StageTimes times = this->times(figures, summary);
    return {std::move(name), std::move(regions), figures, summary, times};
  }

  // Bytes in a second, to the group along an axis.
  double rate(MeshAxis axis) const {
    return is_within_nodes(options_.mesh, axis, options_.devices_per_node) ? options_.link_bytes
                                                                           : options_.network_bytes;
  }

  double seconds_of(const Traffic& traffic, MeshAxis axis) const {
    return static_cast<double>(traffic.bytes_by_ring(options_.mesh.along(axis))) / rate(axis);
  }

  StageTimes times(const StepFigures& figures, const ac2::PlanSummary& summary) const {
    const auto micro_batches = static_cast<double>(options_.micro_batches);
    const double cost = operations_of_a_cost() / options_.flops;
    const double in_forward = seconds_of(figures.tensor_in_forward, MeshAxis::kTensor) +
                              seconds_of(figures.context_in_forward, MeshAxis::kContext);
    const double in_optimizer = seconds_of(figures.tensor_in_optimizer, MeshAxis::kTensor);
    const double in_backward = seconds_of(figures.tensor, MeshAxis::kTensor) +
                               seconds_of(figures.context, MeshAxis::kContext) - in_forward - in_optimizer;
    const double wire = options_.mesh.pipeline == 1
                            ? 0
                            : static_cast<double>(c10::multiply_integers(stage_.hidden_sizes(options_.batch)) *
                                                  static_cast<int64_t>(c10::elementSize(options_.model.dtype))) /
                                  rate(MeshAxis::kPipeline);
    return {.forward = summary.forward_cost * cost + in_forward / micro_batches,
            .backward = (2 * summary.forward_cost + summary.replay_cost) * cost + in_backward / micro_batches,
            .to_next = stage_.is_last() ? 0 : wire,
            .to_before = stage_.is_first() ? 0 : wire,
            .after = in_optimizer + seconds_of(figures.replicas, MeshAxis::kReplicas)};
  }

  double seconds(const PlannedStep& step) const { return step.times.busy(options_.micro_batches); }

  PlannedStep by_layer(std::string name, const ac2::Policy& policy, bool gather_again) {
    const Regions regions{.by_layer = policy, .gather_again = gather_again};
    ac2::StepPlanner planner = this->planner(regions);
    return step(std::move(name), regions, planner.summarize(all_ops));
  }

  // Not gathering again comes first.
  std::vector<bool> with_and_without_gathering_again() const {
    return gathers_ ? std::vector<bool>{false, true} : std::vector<bool>{false};
  }

  // What the regions of all micro-batches in flight hold at most: one is at its peak, and the others wait.
  int64_t bytes_in_flight(const ac2::PlanSummary& summary) const {
    return (in_flight_ - 1) * summary.forward_bytes + summary.peak_bytes;
  }

  // What the device has for regions, as known from the steps before: the rest is parameters and so on, what the program
  // holds of the micro-batches in flight, and what comes on top of all that is held.
  int64_t room(const StagePlan& plan, bool gather_again) const {
    const PlannedStep& none = plan.steps[0];
    const int64_t of_program = none.figures.held_bytes - in_flight_ * none.summary.forward_bytes;
    int64_t on_top = 0;
    for (const PlannedStep& step : plan.steps) {
      if (step.regions.gather_again == gather_again) {
        on_top = std::max(on_top, step.figures.peak_bytes - of_program - bytes_in_flight(step.summary));
      }
    }
    return options_.device_bytes - plan.state_bytes() - of_program - on_top;
  }

  // Null if no plan is that small.
  std::optional<ac2::Plan> plan_within(ac2::StepPlanner& planner, int64_t bytes) const {
    // The smallest plan takes a search that is not needed where all fits.
    const bool fits =
        bytes_in_flight(planner.summarize(all_ops)) <= bytes || bytes_in_flight(planner.smallest().summary()) <= bytes;
    return fits && bytes > 0 ? std::optional(planner.plan(bytes)) : std::nullopt;
  }

  PlannedStep planned(std::string name, Regions regions, const ac2::Plan& plan) {
    name += regions.gather_again ? ", gathers" : "";
    regions.around_all = plan;
    return step(std::move(name), std::move(regions), plan.summary());
  }

  // The cheapest plan without gathering again and the cheapest with it, if the device has room for both: that which
  // takes less time.
  PlannedStep within_device(const StagePlan& plan) {
    std::optional<PlannedStep> best, smallest;
    for (const bool again : with_and_without_gathering_again()) {
      if (best && best->summary.replay_cost == 0) break;
      const Regions regions{.gather_again = again};
      ac2::StepPlanner planner = this->planner(regions);
      // What comes on top is not the same in each step, so that a plan may turn out too large.
      int64_t bytes = room(plan, again);
      for (int i = 0; i < kTries; ++i) {
        const std::optional<ac2::Plan> chosen = plan_within(planner, bytes);
        if (!chosen) break;
        PlannedStep made = planned("the plan that fits", regions, *chosen);
        const int64_t over = plan.state_bytes() + made.figures.peak_bytes - options_.device_bytes;
        if (over <= 0) {
          if (!best || seconds(made) < seconds(*best)) best = std::move(made);
          break;
        }
        bytes -= over << i;  // twice as much each time, because another plan may be over at another place
      }
      if (best) continue;
      const ac2::Plan least = planner.smallest();
      if (!smallest || bytes_in_flight(least.summary()) < bytes_in_flight(smallest->summary)) {
        smallest = planned("the smallest plan", regions, least);
      }
    }
    return best ? *std::move(best) : *std::move(smallest);
  }

  const MeshPlanOptions& options_;
  MeshGroups groups_;
  Stage stage_;
  MeshOptimizer optimizer_;
  const int64_t in_flight_;  // micro-batches
  bool gathers_;             // whether there are all-gathers within layers
};

}  // namespace

StagePlan plan_stage(const MeshPlanOptions& options, int64_t stage) {
  check_mesh(options.mesh);
  MetaMemory::install();
  return StagePlanner(options, stage).plan();
}

std::optional<PlannedStep> smaller_plan(const MeshPlanOptions& options, const StagePlan& plan, const PlannedStep& than,
                                        double seconds) {
  MetaMemory::install();
  return StagePlanner(options, plan.stage).smaller(than, seconds);
}

}  // namespace gpt

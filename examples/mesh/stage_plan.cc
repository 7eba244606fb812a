#include "examples/mesh/stage_plan.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "examples/mesh/backward_later.h"
#include "examples/mesh/meta_memory.h"
#include "examples/mesh/stage_times.h"

namespace gpt {

namespace {

// How often a plan is made for a device before it counts as one that does not fit.
constexpr int kTries = 8;
// Halvings of the bytes between a plan and the smallest one.
constexpr int kSmallerTries = 6;
// How often a plan is made, each time with half the copies, before the host's memory counts as too small.
constexpr int kCopyTries = 5;

bool all_ops(const ac2::StepPlanner::Op&) {
  return true;
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
    PlannedStep best = within_device(plan);
    if (options_.host_bytes > 0 && (!fits(plan, best) || seconds(best) > seconds(plan.steps[0]))) {
      for (const bool again : with_and_without_gathering_again()) add_copies(plan, again, best);
      if (plan.beyond_host && !is_better(plan, *plan.beyond_host, best)) plan.beyond_host.reset();
    }
    plan.steps.push_back(std::move(best));
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
  ac2::StepPlanner planner(const Regions& regions, double copied_in_forward = 0) const {
    const std::vector<int64_t> sizes = {stage_.own_tokens(), options_.batch};
    const auto words = stage_.hidden_options().dtype(at::kLong);
    at::Tensor targets = stage_.is_last() ? at::empty(sizes, words) : at::Tensor();
    const at::Tensor input =
        stage_.is_first() ? at::empty(sizes, words)
                          : at::empty(stage_.hidden_sizes(options_.batch), stage_.hidden_options()).requires_grad_();
    ac2::PlanOptions options{.in_flight = in_flight_};
    if (copied_in_forward > 0) {
      options.forms = {ac2::forms::host_memory()};
      options.copy_bytes_per_forward = copied_in_forward;
    }
    return ac2::StepPlanner(
        [&] {
          // As in pipeline_step.cc the targets are let go after forward, and the input after backward.
          const BackwardLater backward(forward_in_regions(stage_, input, std::exchange(targets, {}), regions, nullptr));
          backward.run(at::ones(backward.sizes(), backward.options()));
        },
        std::move(options));
  }

  PlannedStep step(std::string name, Regions regions, ac2::PlanSummary summary) {
    StepFigures figures = run_step(
        stage_, optimizer_, {.micro_batches = options_.micro_batches, .batch = options_.batch, .regions = regions});
    const StageTimes times = modelled_times(options_, stage_, figures, summary);
    return {std::move(name), std::move(regions), figures, summary, times};
  }

  double seconds(const PlannedStep& step) const { return step.times.busy(options_.micro_batches); }

  bool fits(const StagePlan& plan, const PlannedStep& step) const {
    return plan.state_bytes() + step.figures.peak_bytes <= options_.device_bytes;
  }

  bool is_better(const StagePlan& plan, const PlannedStep& a, const PlannedStep& b) const {
    return fits(plan, a) && (!fits(plan, b) || seconds(a) < seconds(b));
  }

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

  // What the program holds of the micro-batches in flight.
  int64_t of_program(const StagePlan& plan) const {
    return plan.steps[0].figures.held_bytes - in_flight_ * plan.steps[0].summary.forward_bytes;
  }

  // What the device has for regions, as known from the steps before: the rest is parameters and so on, what the program
  // holds, and what comes on top of all that is held.
  int64_t room(const StagePlan& plan, bool gather_again) const {
    int64_t on_top = 0;
    for (const PlannedStep& step : plan.steps) {
      if (step.regions.gather_again == gather_again) {
        on_top = std::max(on_top, step.figures.peak_bytes - of_program(plan) - bytes_in_flight(step.summary));
      }
    }
    return options_.device_bytes - plan.state_bytes() - of_program(plan) - on_top;
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
        taken_off_[again ? 1 : 0] += over << i;
      }
      if (best) continue;
      const ac2::Plan least = planner.smallest();
      if (!smallest || bytes_in_flight(least.summary()) < bytes_in_flight(smallest->summary)) {
        smallest = planned("the smallest plan", regions, least);
      }
    }
    return best ? *std::move(best) : *std::move(smallest);
  }

  // The cheapest plan whose copies fit into the host's memory, in place of `best` if it is better.
  void add_copies(StagePlan& plan, bool again, PlannedStep& best) const {
    const auto none = std::find_if(plan.steps.begin(), plan.steps.end(),
                                   [&](const PlannedStep& step) { return step.regions.gather_again == again; });
    const int64_t bytes = room(plan, again) - taken_off_[again ? 1 : 0];
    double copied_in_forward = options_.host_link_bytes * none->times.forward;
    for (int i = 0; i < kCopyTries; ++i, copied_in_forward /= 2) {
      ac2::StepPlanner planner = this->planner({.gather_again = again}, copied_in_forward);
      const std::optional<ac2::Plan> chosen = plan_within(planner, bytes);
      if (!chosen) return;
      PlannedStep made = copying(plan, *none, *chosen);
      if (made.host_bytes == 0) return;
      if (made.host_bytes <= host_bytes_of_device(options_)) {
        if (is_better(plan, made, best)) best = std::move(made);
        return;
      }
      if (i == 0 && (!plan.beyond_host || is_better(plan, made, *plan.beyond_host))) plan.beyond_host = made;
    }
  }

  PlannedStep copying(const StagePlan& plan, const PlannedStep& none, const ac2::Plan& chosen) const {
    const ac2::PlanSummary& summary = chosen.summary();
    PlannedStep step = none;
    step.name = std::string("the plan that fits, copies") + (none.regions.gather_again ? ", gathers" : "");
    step.regions = {.around_all = chosen, .gather_again = none.regions.gather_again};
    step.summary = summary;
    step.figures.held_bytes = of_program(plan) + in_flight_ * summary.forward_bytes;
    step.figures.saved_bytes -= in_flight_ * (none.summary.forward_bytes - summary.forward_bytes);
    step.figures.peak_bytes = options_.device_bytes - plan.state_bytes();
    step.figures.replayed_ops = options_.micro_batches * summary.replayed_ops;
    step.times = modelled_times(options_, stage_, step.figures, summary);
    for (const ac2::PlanSummary::Use& use : summary.uses) step.host_bytes += in_flight_ * use.bytes;
    return step;
  }

  const MeshPlanOptions& options_;
  MeshGroups groups_;
  Stage stage_;
  MeshOptimizer optimizer_;
  const int64_t in_flight_;  // micro-batches
  bool gathers_;             // whether there are all-gathers within layers
  // Without gathering again and with it: of the room, what plans that turned out too large have shown to be missing.
  std::array<int64_t, 2> taken_off_{};
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

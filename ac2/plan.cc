#include "ac2/plan.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/Exception.h>

#include <utility>
#include <vector>

#include "ac2/internal/budget/budget.h"
#include "ac2/internal/following/plan_file.h"
#include "ac2/internal/following/plan_follower.h"
#include "ac2/internal/following/planned_step.h"
#include "ac2/internal/libtorch/tensor_bytes.h"
#include "ac2/internal/observe/step_log.h"
#include "ac2/internal/opening/open_region.h"
#include "ac2/internal/operators/cost_source.h"
#include "ac2/internal/operators/meta_kernels.h"
#include "ac2/internal/planning/planner.h"
#include "ac2/internal/region/close_scope.h"
#include "ac2/internal/region/region.h"

namespace ac2 {

using internal::CostSource;
using internal::Keep;
using internal::KeepPlan;
using internal::PlannedStep;
using internal::StepGraph;
using internal::StepLog;
using internal::ThreadRegions;

namespace {

constexpr int64_t kUnlimited = int64_t{1} << 60;

CheckpointPolicy decision_for(StepGraph::Fate fate, Keep keep) {
  if (fate == StepGraph::Fate::kSaved) {
    return CheckpointPolicy::PREFER_SAVE;  // the policy that saves the result wins over this
  }
  if (fate == StepGraph::Fate::kRecomputed || keep == Keep::kNothing) {
    return CheckpointPolicy::MUST_RECOMPUTE;
  }
  // A budget keeps what hooks want; for the sake of replays alone only MUST_SAVE does.
  return keep == Keep::kWanted ? CheckpointPolicy::PREFER_SAVE : CheckpointPolicy::MUST_SAVE;
}

}  // namespace

struct StepPlanner::State {
  CostSource costs = CostSource::kMeasured;
  internal::PlannedCalls calls;
  StepGraph graph;
  std::vector<int64_t> indices;      // by op of the graph
  std::vector<bool> decided_within;  // the same: a MUST decision of a scope inside, which no other may contradict
  std::optional<internal::Planner> planner;
  double forward_cost = 0;

  PolicyDecision note(const OpContext& op) {
    const auto index = static_cast<size_t>(op.index());
    if (calls.size() <= index) {
      calls.resize(index + 1);
    }
    calls[index] = internal::PlannedCall{op.op(), internal::bytes_of(op.outputs())};
    return CheckpointPolicy::PREFER_SAVE;
  }

  void record(const std::function<void()>& step, const PlanOptions& options);

  PlanSummary summary(const KeepPlan& plan) const {
    return {.forward_bytes = plan.outcome.forward_bytes,
            .peak_bytes = plan.outcome.peak_bytes,
            .replayed_ops = plan.outcome.replays,
            .replay_cost = plan.outcome.replay_cost,
            .forward_cost = forward_cost};
  }

  std::shared_ptr<const PlannedStep> planned(const KeepPlan& plan, int64_t bytes) const {
    auto step = std::make_shared<PlannedStep>();
    step->calls = calls;
    step->decisions.assign(calls.size(), CheckpointPolicy::PREFER_SAVE);
    for (size_t op = 0; op < graph.ops.size(); ++op) {
      if (!decided_within[op]) {
        step->decisions[indices[op]] = decision_for(graph.ops[op].fate, plan.kept[op]);
      }
    }
    step->bytes = bytes;
    step->costs = costs;
    return step;
  }
};

void StepPlanner::State::record(const std::function<void()>& step, const PlanOptions& options) {
  auto log = std::make_shared<StepLog>(internal::cost_source(options.modelled_costs));
  // Under a budget even if it has no end: that changes which writes are recorded as ops that can be replayed.
  const auto budget = std::make_shared<internal::Budget>(options.recording_budget.value_or(kUnlimited),
                                                         internal::cost_source(options.modelled_costs));
  internal::install_meta_kernels();
  // Not a constant policy: before an op runs it must be known that it may have to be recomputed.
  const Policy policy = [this](const OpContext& op) { return note(op); };
  const auto scope = internal::open_region(policy, {.budget = budget, .log = log});
  const std::shared_ptr<internal::Tape> tape = scope->region->tape;
  const auto stop = [&] {
    {
      const internal::Tape::Lock locked(*tape);
      locked->observers().remove(log.get());
    }
    internal::close_scope(scope);
  };
  try {
    step();
  } catch (...) {
    stop();
    throw;
  }
  {
    const internal::Tape::Lock lock(*tape);
    graph = log->take();
    indices = log->indices();
    decided_within = log->decided_within();
    costs = *log->costs();
  }
  stop();
}

StepPlanner::StepPlanner(const std::function<void()>& step, PlanOptions options) : state_(std::make_unique<State>()) {
  TORCH_CHECK(step, "A plan needs a step to record, but was given an empty std::function.");
  TORCH_CHECK(!options.recording_budget || *options.recording_budget > 0,
              "PlanOptions::recording_budget must be a positive number of bytes, but is ", *options.recording_budget,
              ".");
  TORCH_CHECK(ThreadRegions::here().innermost() == nullptr,
              "A step cannot be planned inside a region: its ops would be recorded twice. Plan it where no "
              "PolicyScope is open.");
  state_->record(step, options);
  const StepGraph& graph = state_->graph;
  TORCH_CHECK(!graph.hooks.empty(), "There is nothing to plan: the step ran ", graph.ops.size(),
              " ops on this thread that compute something, and autograd saved nothing for backward. A step must have a "
              "forward pass in it, with grad mode on and inputs or parameters that require gradients.");
  for (const StepGraph::Op& op : graph.ops) {
    state_->forward_cost += op.cost;
  }
  state_->planner.emplace(graph);
}

StepPlanner::~StepPlanner() = default;

StepPlanner::Plan StepPlanner::plan(int64_t bytes) {
  TORCH_CHECK(bytes > 0, "A plan's budget must be a positive number of bytes, but is ", bytes, ".");
  const std::optional<KeepPlan> plan = state_->planner->solve(bytes);
  TORCH_CHECK(
      plan, "No plan holds this step within ", bytes, " bytes: the smallest that was found takes ",
      state_->planner->smallest().outcome.peak_bytes,
      ". Give it at least those, or give the scope a memory budget instead (ScopeOptions::memory_budget; in Python "
      "memory_budget=), under which ops are replayed more than once where they must be.");
  const auto step = state_->planned(*plan, bytes);
  return {internal::follow(step), state_->summary(*plan)};
}

StepPlanner::Plan StepPlanner::smallest() {
  return plan(std::max<int64_t>(state_->planner->smallest().outcome.peak_bytes, 1));
}

PlanSummary StepPlanner::summarize(const std::function<bool(const Op&)>& keeps) {
  TORCH_CHECK(keeps, "StepPlanner::summarize needs a function, but was given an empty std::function.");
  const StepGraph& graph = state_->graph;
  std::vector<Keep> kept(graph.ops.size(), Keep::kNothing);
  for (uint32_t i = 0; i < kept.size(); ++i) {
    if (graph.ops[i].fate == StepGraph::Fate::kOpen) {
      const int64_t index = state_->indices[i];
      const Op op{.name = c10::toString(state_->calls[index]->op.operator_name()),
                  .index = index,
                  .bytes = state_->planner->simulator().wanted_bytes(i),
                  .cost = graph.ops[i].cost};
      kept[i] = keeps(op) ? Keep::kWanted : Keep::kNothing;
    }
  }
  return state_->summary(state_->planner->evaluate(std::move(kept)));
}

Policy plan(const std::function<void()>& step, int64_t bytes, PlanOptions options) {
  TORCH_CHECK(bytes > 0, "A plan's budget must be a positive number of bytes, but is ", bytes, ".");
  if (!options.recording_budget) {
    options.recording_budget = bytes;
  }
  return StepPlanner(step, options).plan(bytes).policy;
}

void save_plan(const Policy& plan, const std::string& path) {
  const std::shared_ptr<const PlannedStep> step = internal::plan_of(plan);
  TORCH_CHECK(
      step, "save_plan was given ",
      plan.name().empty() ? std::string("a policy without a name") : c10::str("the policy \"", plan.name(), "\""),
      ", which is no plan; expected what ac2::plan, StepPlanner or load_plan returned, not composed with "
      "another policy.");
  internal::write_plan(*step, path);
}

Policy load_plan(const std::string& path) {
  return internal::follow(internal::read_plan(path));
}

}  // namespace ac2

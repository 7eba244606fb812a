#include "ac2/plan.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/Exception.h>

#include <atomic>
#include <utility>
#include <vector>

#include "ac2/internal/budget/budget.h"
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
using internal::StepGraph;
using internal::StepLog;
using internal::ThreadRegions;

namespace {

constexpr int64_t kUnlimited = int64_t{1} << 60;

// By which an op is known again.
struct Call {
  c10::OperatorHandle op;
  int64_t result_bytes = 0;
};

// By OpContext::index(); empty where no policy is asked.
using Calls = std::vector<std::optional<Call>>;

struct PlannedStep {
  std::shared_ptr<const Calls> calls;
  std::vector<CheckpointPolicy> decisions;  // as long as `calls`
  int64_t bytes = 0;
  CostSource costs = CostSource::kMeasured;
  std::atomic<bool> warned{false};
};

// One region's way along a plan.
class Follower {
 public:
  explicit Follower(std::shared_ptr<PlannedStep> plan) : plan_(std::move(plan)) {}

  PolicyDecision operator()(const OpContext& op) {
    if (lost_) {
      return CheckpointPolicy::PREFER_SAVE;
    }
    const auto index = static_cast<size_t>(op.index());
    const Call* call = index < plan_->calls->size() && (*plan_->calls)[index] ? &*(*plan_->calls)[index] : nullptr;
    const int64_t bytes = internal::bytes_of(op.outputs());
    if (call != nullptr && call->op == op.op() && call->result_bytes == bytes) {
      return plan_->decisions[index];
    }
    lost_ = true;
    if (!plan_->warned.exchange(true)) {
      const std::string planned = call != nullptr ? c10::str(c10::toString(call->op.operator_name()),
                                                             " with results of ", call->result_bytes, " bytes was")
                                                  : "nothing was";
      TORCH_WARN("ac2::plan: the program is not the one that was planned: op ", index, " of its region is ",
                 c10::toString(op.op().operator_name()), " with results of ", bytes, " bytes, where ", planned,
                 " planned. The rest of the region keeps within the plan's ", plan_->bytes,
                 " bytes by dropping results as it goes. Plan again for the program as it is now, and open the scope "
                 "where the planned step began. This is said once for each plan.");
    }
    return CheckpointPolicy::PREFER_SAVE;
  }

 private:
  std::shared_ptr<PlannedStep> plan_;
  bool lost_ = false;
};

CheckpointPolicy decision_for(StepGraph::Fate fate, Keep keep) {
  if (fate == StepGraph::Fate::kSaved) {
    return CheckpointPolicy::PREFER_SAVE;  // what saves it wins over this
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
  std::shared_ptr<Calls> calls = std::make_shared<Calls>();
  StepGraph graph;
  std::vector<int64_t> indices;      // by op of the graph
  std::vector<bool> decided_within;  // the same: a MUST decision of a scope inside, which no other may contradict
  std::optional<internal::Planner> planner;
  double forward_cost = 0;

  PolicyDecision note(const OpContext& op) {
    const auto index = static_cast<size_t>(op.index());
    if (calls->size() <= index) {
      calls->resize(index + 1);
    }
    (*calls)[index] = Call{op.op(), internal::bytes_of(op.outputs())};
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

  std::shared_ptr<PlannedStep> planned(const KeepPlan& plan, int64_t bytes) const {
    auto step = std::make_shared<PlannedStep>();
    step->calls = calls;
    step->decisions.assign(calls->size(), CheckpointPolicy::PREFER_SAVE);
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
  // Not a constant: that an op may have to be recomputed must be known before it runs.
  const Policy policy = [this](const OpContext& op) { return note(op); };
  const auto scope = internal::open_region(
      policy, {.verify = false, .timeline = false, .budget = budget, .plan_budget = nullptr, .log = log});
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
              "A step cannot be planned inside a region: its ops would be recorded twice. Call ac2::plan where no "
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
  TORCH_CHECK(plan, "No plan holds this step within ", bytes, " bytes: the smallest that was found takes ",
              state_->planner->smallest().outcome.peak_bytes,
              ". Give it at least those, or use ScopeOptions::memory_budget, which replays ops more than once if it "
              "must.");
  const auto step = state_->planned(*plan, bytes);
  return {Policy::per_region([step] {
            Policy::Instance instance;
            instance.fn = Follower(step);
            instance.memory_budget = step->bytes;
            instance.modelled_costs = step->costs == CostSource::kModelled;
            return instance;
          }),
          state_->summary(*plan)};
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
      const Op op{.name = c10::toString((*state_->calls)[index]->op.operator_name()),
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

}  // namespace ac2

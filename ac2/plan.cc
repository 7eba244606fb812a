#include "ac2/plan.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "ac2/internal/allocator/memory_meter.h"
#include "ac2/internal/budget/budget.h"
#include "ac2/internal/following/plan_file.h"
#include "ac2/internal/following/plan_follower.h"
#include "ac2/internal/following/planned_step.h"
#include "ac2/internal/libtorch/spelling.h"
#include "ac2/internal/libtorch/tensor_bytes.h"
#include "ac2/internal/observe/measured_forms.h"
#include "ac2/internal/observe/step_log.h"
#include "ac2/internal/observe/step_meter.h"
#include "ac2/internal/offload/offload_device.h"
#include "ac2/internal/opening/open_region.h"
#include "ac2/internal/operators/cost_source.h"
#include "ac2/internal/operators/meta_kernels.h"
#include "ac2/internal/planning/copy_planner.h"
#include "ac2/internal/planning/narrow_planner.h"
#include "ac2/internal/planning/planner.h"
#include "ac2/internal/planning/step_graph.h"
#include "ac2/internal/planning/step_peak.h"
#include "ac2/internal/planning/step_readings.h"
#include "ac2/internal/region/close_scope.h"
#include "ac2/internal/region/region.h"
#include "ac2/offload_options.h"

namespace ac2 {

using internal::CopyPlan;
using internal::CostSource;
using internal::Keep;
using internal::KeepPlan;
using internal::PlannedStep;
using internal::StepGraph;
using internal::StepLog;
using internal::StepPeak;
using internal::StepReadings;
using internal::ThreadRegions;

namespace {

constexpr int64_t kUnlimited = int64_t{1} << 60;

CheckpointPolicy decision_for(StepGraph::Fate fate, Keep keep, bool is_final) {
  if (fate == StepGraph::Fate::kSaved) {
    return CheckpointPolicy::PREFER_SAVE;  // the policy that saves the result wins over this
  }
  if (is_final) {
    return CheckpointPolicy::MUST_SAVE;  // nothing is held for replays of the op, for there are none
  }
  if (keep == Keep::kCopied && fate == StepGraph::Fate::kOpen) {
    return CheckpointPolicy::MUST_CPU_OFFLOAD;
  }
  if (fate == StepGraph::Fate::kRecomputed || keep == Keep::kNothing) {
    return CheckpointPolicy::MUST_RECOMPUTE;
  }
  // A budget keeps what hooks want; for the sake of replays alone only MUST_SAVE does.
  return keep == Keep::kWanted ? CheckpointPolicy::PREFER_SAVE : CheckpointPolicy::MUST_SAVE;
}

void check(const PlanOptions& options) {
  TORCH_CHECK(!options.recording_budget || *options.recording_budget > 0,
              "PlanOptions::recording_budget must be a positive number of bytes, but is ", *options.recording_budget,
              ".");
  TORCH_CHECK(!options.copy_bytes_per_forward ||
                  (std::isfinite(*options.copy_bytes_per_forward) && *options.copy_bytes_per_forward > 0),
              "PlanOptions::copy_bytes_per_forward must be a positive number of bytes, but is ",
              *options.copy_bytes_per_forward, ". Leave it out for a plan without copies.");
  TORCH_CHECK(options.copy_min_bytes >= 0,
              "PlanOptions::copy_min_bytes must be a number of bytes that is not negative, but is ",
              options.copy_min_bytes, ".");
  const auto& form = options.allow_inexact;
  TORCH_CHECK(!form || form->save_with_hooks() != nullptr, "PlanOptions::allow_inexact is ",
              to_string(form ? form->policy() : CheckpointPolicy::MUST_SAVE),
              "; expected a form to pack values in, a SaveWithHooks (",
              internal::spelled("policies::quantized_form(8)", "ac2.policies.quantized_form(8)"), ").");
  TORCH_CHECK(
      !form || !options.step_peak_on,
      "PlanOptions::allow_inexact and PlanOptions::step_peak_on were both given, but each result is packed once "
      "while the step is recorded for a plan that packs, and that memory would be measured too. Measure the "
      "peak without a form.");
  TORCH_CHECK(!form || !options.copy_bytes_per_forward,
              "PlanOptions::allow_inexact and PlanOptions::copy_bytes_per_forward were both given, but a plan either "
              "packs results or copies them. Give one of the two, and compare the summaries of both plans.");
}

bool can_leave(c10::Device device) {
  // A step that is planned on meta tensors runs elsewhere.
  return device.is_meta() || (!device.is_cpu() && internal::OffloadDevice::of(device) != nullptr);
}

using Devices = std::vector<std::optional<c10::Device>>;  // by value of a graph

// Notes which values may be copied.
void mark_leaving(const Devices& devices, int64_t min_bytes, StepGraph& graph) {
  bool on_a_device = false, any = false;
  for (size_t i = 0; i < graph.values.size(); ++i) {
    StepGraph::Value& value = graph.values[i];
    if (value.op != StepGraph::kOutside && devices[i] && can_leave(*devices[i])) {
      on_a_device = true;
      value.leaves = value.bytes > 0 && value.unpacked_bytes == 0 && value.bytes >= min_bytes;
      any |= value.leaves;
    }
  }
  TORCH_CHECK(on_a_device,
              "PlanOptions::copy_bytes_per_forward was given, but no result of the step can be copied to the host's "
              "memory: none is on a device that has streams, events and pinned memory, nor on the meta device. Leave "
              "the option out, or plan the step on such a device.");
  if (!any) {
    TORCH_WARN(
        "PlanOptions::copy_bytes_per_forward has no effect: no result of the step has PlanOptions::"
        "copy_min_bytes, which are ",
        min_bytes, " bytes.");
  }
}

}  // namespace

struct StepPlanner::State {
  CostSource costs = CostSource::kMeasured;
  internal::PlannedCalls calls;
  StepGraph graph;
  std::vector<int64_t> indices;      // by op of the graph
  std::vector<bool> decided_within;  // the same: a MUST decision of a scope inside, which no other may contradict
  int64_t copy_min_bytes = 0;
  std::optional<internal::Planner> planner;
  std::optional<internal::CopyPlanner> copies;  // if results may be copied
  std::optional<StepReadings> readings;         // until `peak` has them
  std::optional<StepPeak> peak;                 // if it is known
  // If results may be packed.
  std::optional<PolicyDecision> form;
  std::optional<internal::MeasuredForms> forms;
  std::optional<internal::NarrowPlanner> narrow;
  bool has_choices = false;  // results have been saved that must not be chosen again
  double forward_cost = 0;

  PolicyDecision note(const OpContext& op) {
    const auto index = static_cast<size_t>(op.index());
    if (calls.size() <= index) {
      calls.resize(index + 1);
    }
    calls[index] = internal::PlannedCall{op.op(), internal::bytes_of(op.outputs())};
    if (forms) {
      forms->measure(op);
    }
    return CheckpointPolicy::PREFER_SAVE;
  }

  // Returns the devices of the graph's values.
  Devices record(const std::function<void()>& step, const PlanOptions& options);

  PlanSummary summary(const KeepPlan& plan) {
    PlanSummary summary{.forward_bytes = plan.outcome.forward_bytes,
                        .peak_bytes = plan.outcome.peak_bytes,
                        .replayed_ops = plan.outcome.replays,
                        .replay_cost = plan.outcome.replay_cost,
                        .forward_cost = forward_cost,
                        .copied_values = plan.outcome.copied_values,
                        .copied_bytes = plan.outcome.copied_bytes,
                        .copy_wait = plan.outcome.copy_wait,
                        .narrowed_values = plan.outcome.narrowed_values,
                        .narrowed_bytes = plan.outcome.narrowed_bytes,
                        .narrow_cost = plan.outcome.narrow_cost};
    if (peak && plan.outcome.copied_values == 0 && plan.outcome.narrowed_values == 0) {
      summary.step_peak_bytes = peak->of(plan.kept);
      summary.step_start_bytes = peak->start();
    }
    return summary;
  }

  std::optional<CopyPlan> solve(int64_t bytes) {
    if (copies) {
      return copies->solve(bytes);
    }
    std::optional<KeepPlan> plan = narrow ? narrow->solve(bytes) : planner->solve(bytes);
    return plan ? std::optional(CopyPlan{*std::move(plan), {}}) : std::nullopt;
  }
  int64_t smallest_bytes() {
    const KeepPlan& smallest = copies ? copies->smallest().keep : narrow ? narrow->smallest() : planner->smallest();
    return smallest.outcome.peak_bytes;
  }

  std::shared_ptr<const PlannedStep> planned(const CopyPlan& plan, int64_t bytes) const {
    auto step = std::make_shared<PlannedStep>();
    step->calls = calls;
    step->decisions.assign(calls.size(), CheckpointPolicy::PREFER_SAVE);
    const std::vector<uint8_t> are_final = planner->simulator().final_ops(plan.keep.kept);
    for (size_t op = 0; op < graph.ops.size(); ++op) {
      if (!decided_within[op]) {
        const bool is_final = !are_final.empty() && are_final[op] != 0;
        step->decisions[indices[op]] = decision_for(graph.ops[op].fate, plan.keep.kept[op], is_final);
      }
    }
    step->is_inexact = has_choices || plan.keep.outcome.narrowed_values > 0;
    if (plan.keep.outcome.narrowed_values > 0) {
      step->form = form;
      step->packs.resize(calls.size());
      for (size_t op = 0; op < graph.ops.size(); ++op) {
        step->packs[indices[op]] =
            graph.ops[op].fate == StepGraph::Fate::kOpen && plan.keep.kept[op] == Keep::kNarrowed;
      }
    }
    step->bytes = bytes;
    step->costs = costs;
    if (plan.keep.outcome.copied_values > 0) {
      step->copies = OffloadOptions{.min_bytes = copy_min_bytes,
                                    .read_ahead_bytes = plan.copies.read_ahead_bytes,
                                    .in_flight_bytes = plan.copies.in_flight_bytes};
    }
    return step;
  }
};

Devices StepPlanner::State::record(const std::function<void()>& step, const PlanOptions& options) {
  std::unique_ptr<internal::MemoryMeter> memory =
      options.step_peak_on ? internal::MemoryMeter::of(*options.step_peak_on) : nullptr;
  auto log =
      std::make_shared<StepLog>(internal::cost_source(options.modelled_costs),
                                memory != nullptr ? std::make_unique<internal::StepMeter>(std::move(memory)) : nullptr);
  // Under a budget even if it has no end: that changes which writes are recorded as ops that can be replayed.
  const auto budget = std::make_shared<internal::Budget>(options.recording_budget.value_or(kUnlimited),
                                                         internal::cost_source(options.modelled_costs));
  internal::install_meta_kernels();
  // Not a constant policy: before an op runs it must be known that it may have to be recomputed.
  const Policy policy = [this](const OpContext& op) { return note(op); };
  const auto scope = internal::open_region(policy, {.budget = budget, .log = log});
  const std::shared_ptr<internal::Tape> tape = scope->region->tape;
  if (options.allow_inexact) {
    const internal::Tape::Lock locked(*tape);
    locked->kept().expect_inexact();
  }
  const auto stop = [&] {
    {
      const internal::Tape::Lock locked(*tape);
      locked->observers().remove(log.get());
      log->stop_measuring();
    }
    internal::close_scope(scope);
  };
  Devices devices;
  try {
    step();
  } catch (...) {
    stop();
    throw;
  }
  {
    const internal::Tape::Lock lock(*tape);
    graph = log->take();
    readings = log->readings();
    indices = log->indices();
    decided_within = log->decided_within();
    devices = log->devices();
    costs = *log->costs();
    if (forms) {
      forms->mark(*log, graph);
      has_choices = lock->kept().has_choices();
    }
  }
  stop();
  return devices;
}

StepPlanner::StepPlanner(const std::function<void()>& step, PlanOptions options) : state_(std::make_unique<State>()) {
  TORCH_CHECK(step, "A plan needs a step to record, but was given an empty std::function.");
  check(options);
  TORCH_CHECK(ThreadRegions::here().innermost() == nullptr,
              "A step cannot be planned inside a region: its ops would be recorded twice. Plan it where no "
              "PolicyScope is open.");
  state_->form = options.allow_inexact;
  if (options.allow_inexact) {
    state_->forms.emplace(options.allow_inexact->save_with_hooks());
  }
  const Devices devices = state_->record(step, options);
  const StepGraph& graph = state_->graph;
  TORCH_CHECK(!graph.hooks.empty(), "There is nothing to plan: the step ran ", graph.ops.size(),
              " ops on this thread that compute something, and autograd saved nothing for backward. A step must have a "
              "forward pass in it, with grad mode on and inputs or parameters that require gradients.");
  for (const StepGraph::Op& op : graph.ops) {
    state_->forward_cost += op.cost;
  }
  if (options.copy_bytes_per_forward) {
    mark_leaving(devices, options.copy_min_bytes, state_->graph);
  }
  state_->planner.emplace(graph);
  if (state_->readings) {
    state_->peak.emplace(graph, *std::move(state_->readings));
  }
  if (options.copy_bytes_per_forward) {
    state_->copy_min_bytes = options.copy_min_bytes;
    state_->copies.emplace(graph, *state_->planner, *options.copy_bytes_per_forward / state_->forward_cost);
  }
  if (options.allow_inexact) {
    state_->narrow.emplace(graph, *state_->planner);
  }
}

StepPlanner::~StepPlanner() = default;

StepPlanner::Plan StepPlanner::plan(int64_t bytes) {
  TORCH_CHECK(bytes > 0, "A plan's budget must be a positive number of bytes, but is ", bytes, ".");
  const std::optional<CopyPlan> plan = state_->solve(bytes);
  TORCH_CHECK(plan, "No plan holds this step within ", bytes, " bytes: the smallest that was found takes ",
              state_->smallest_bytes(), ". Give it at least those, or give the scope a memory budget instead (",
              internal::spelled("ScopeOptions::memory_budget", "memory_budget="),
              "), under which ops are replayed more than once where they must be.");
  const auto step = state_->planned(*plan, bytes);
  return {internal::follow(step), state_->summary(plan->keep)};
}

StepPlanner::Plan StepPlanner::smallest() {
  return plan(std::max<int64_t>(state_->smallest_bytes(), 1));
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
  options.step_peak_on.reset();
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

#include "ac2/plan.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ac2/internal/allocator/memory_meter.h"
#include "ac2/internal/budget/budget.h"
#include "ac2/internal/following/plan_decisions.h"
#include "ac2/internal/following/plan_file.h"
#include "ac2/internal/following/plan_follower.h"
#include "ac2/internal/following/planned_step.h"
#include "ac2/internal/forms/check_forms.h"
#include "ac2/internal/forms/form_access.h"
#include "ac2/internal/libtorch/spelling.h"
#include "ac2/internal/libtorch/tensor_bytes.h"
#include "ac2/internal/observe/measured_copies.h"
#include "ac2/internal/observe/measured_forms.h"
#include "ac2/internal/observe/step_log.h"
#include "ac2/internal/observe/step_meter.h"
#include "ac2/internal/offload/offload_device.h"
#include "ac2/internal/opening/open_region.h"
#include "ac2/internal/operators/cost_source.h"
#include "ac2/internal/operators/meta_kernels.h"
#include "ac2/internal/planning/budget_player.h"
#include "ac2/internal/planning/form_planner.h"
#include "ac2/internal/planning/planner.h"
#include "ac2/internal/planning/step_graph.h"
#include "ac2/internal/planning/step_peak.h"
#include "ac2/internal/planning/step_readings.h"
#include "ac2/internal/region/close_scope.h"
#include "ac2/internal/region/region.h"
#include "ac2/offload_options.h"

namespace ac2 {

using internal::CostSource;
using internal::FormAccess;
using internal::FormPlan;
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

// The place among the forms of the one that the library copies.
std::optional<uint8_t> host_memory_in(const Forms& forms) {
  for (size_t i = 0; i < forms.size(); ++i) {
    if (FormAccess::copied_with(*forms[i]) != nullptr) {
      return static_cast<uint8_t>(i);
    }
  }
  return std::nullopt;
}

void check(const PlanOptions& options) {
  TORCH_CHECK(!options.recording_budget || options.recording_budget->count() > 0,
              "PlanOptions::recording_budget must be a positive number of bytes, but is ",
              options.recording_budget->count(), ".");
  TORCH_CHECK(!options.copy_bytes_per_forward ||
                  (std::isfinite(*options.copy_bytes_per_forward) && *options.copy_bytes_per_forward > 0),
              "PlanOptions::copy_bytes_per_forward must be a positive number of bytes, but is ",
              *options.copy_bytes_per_forward, ". Leave it out, and the speed is measured.");
  TORCH_CHECK(options.in_flight >= 1, "PlanOptions::in_flight must be 1 or more steps, but is ", options.in_flight,
              ". It counts the step that is in backward, too.");
  internal::check_forms(options.forms, "PlanOptions::forms");
  const bool copies = host_memory_in(options.forms).has_value();
  TORCH_CHECK(copies || !options.copy_bytes_per_forward,
              "PlanOptions::copy_bytes_per_forward was given, but PlanOptions::forms has no form that copies. Add ",
              internal::spelled("forms::host_memory()", "ac2.forms.host_memory()"), ", or leave the speed out.");
  TORCH_CHECK(!options.step_peak_on || options.forms.size() == (copies ? 1 : 0),
              "PlanOptions::step_peak_on and forms that pack were both given, but each result is packed once while the "
              "step is recorded for a plan with such forms, and that memory would be measured too. Measure the peak "
              "without them.");
}

bool can_leave(c10::Device device) {
  // A step that is planned on meta tensors runs elsewhere.
  return device.is_meta() || (!device.is_cpu() && internal::OffloadDevice::of(device) != nullptr);
}

using Devices = std::vector<std::optional<c10::Device>>;  // by value of a graph

// Notes which values may be held in the host's memory.
void mark_leaving(const Devices& devices, uint8_t form, int64_t min_bytes, StepGraph& graph) {
  bool on_a_device = false, any = false;
  for (size_t i = 0; i < graph.values.size(); ++i) {
    StepGraph::Value& value = graph.values[i];
    if (value.op != StepGraph::kOutside && devices[i] && can_leave(*devices[i])) {
      on_a_device = true;
      if (value.bytes > 0 && value.unpacked_bytes == 0 && value.bytes >= min_bytes) {
        value.forms.push_back({.form = form});
        any = true;
      }
    }
  }
  TORCH_CHECK(on_a_device,
              "PlanOptions::forms has forms::host_memory(), but no result of the step can be copied to the host's "
              "memory: none is on a device that has streams, events and pinned memory, nor on the meta device. Leave "
              "the form out, or plan the step on such a device.");
  if (!any) {
    TORCH_WARN("forms::host_memory() has no effect: no result of the step has OffloadOptions::min_bytes, which are ",
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
  Forms forms;
  std::optional<internal::MeasuredForms> measured_forms;    // of a step with forms that pack
  std::optional<internal::MeasuredCopies> measured_copies;  // if the speed of copies is not given
  std::optional<internal::Planner> planner;
  std::optional<internal::FormPlanner> form_planner;  // if results may be held in forms
  std::optional<StepReadings> readings;               // until `peak` has them
  std::optional<StepPeak> peak;                       // if it is known
  bool has_choices = false;                           // results have been saved that must not be chosen again
  double forward_cost = 0;

  PolicyDecision note(const OpContext& op, const StepLog& log) {
    const auto index = static_cast<size_t>(op.index());
    if (calls.size() <= index) {
      calls.resize(index + 1);
    }
    calls[index] = internal::PlannedCall{op.op(), internal::bytes_of(op.outputs())};
    if (measured_forms) {
      measured_forms->measure(op);
    }
    if (measured_copies) {
      measured_copies->measure(op, log.cost());
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
                        .forward_cost = forward_cost};
    for (size_t form = 0; form < plan.outcome.uses.size(); ++form) {
      const internal::KeepOutcome::FormUse& use = plan.outcome.uses[form];
      if (use.values > 0) {
        summary.uses.push_back({forms[form]->name(), use.values, use.bytes, use.cost});
      }
    }
    if (peak && summary.uses.empty()) {
      summary.step_peak_bytes = peak->of(plan.kept);
      summary.step_start_bytes = peak->start();
    }
    return summary;
  }

  std::optional<FormPlan> solve(int64_t bytes) {
    if (form_planner) {
      return form_planner->solve(bytes);
    }
    std::optional<KeepPlan> plan = planner->solve(bytes);
    return plan ? std::optional(FormPlan{*std::move(plan), {}}) : std::nullopt;
  }
  const internal::KeepOutcome& smallest() {
    return (form_planner ? form_planner->smallest().keep : planner->smallest()).outcome;
  }
  // "12", and of several steps in flight how that comes about.
  std::string smallest_bytes() {
    const internal::KeepOutcome& smallest = this->smallest();
    std::string bytes = std::to_string(smallest.total_bytes);
    if (graph.in_flight > 1) {
      bytes += " with " + std::to_string(graph.in_flight) +
               " steps in flight (PlanOptions::in_flight), of which one holds " + std::to_string(smallest.peak_bytes) +
               " at its peak, and each other " + std::to_string(smallest.waiting_bytes) + " until its backward";
    }
    return bytes;
  }

  std::shared_ptr<const PlannedStep> planned(const FormPlan& plan, int64_t bytes) {
    auto step = std::make_shared<PlannedStep>();
    step->calls = calls;
    step->is_inexact = has_choices;
    const std::vector<uint8_t> are_final = planner->simulator().final_ops(plan.keep.kept);
    internal::set_decisions(plan, {graph, indices, decided_within, are_final, forms}, *step);
    // Of several steps in flight each has a region of its own.
    step->bytes = graph.in_flight == 1 ? bytes : std::max<int64_t>(plan.keep.outcome.peak_bytes, 1);
    step->costs = costs;
    step->summary = summary(plan.keep);
    return step;
  }
};

Devices StepPlanner::State::record(const std::function<void()>& step, const PlanOptions& options) {
  std::unique_ptr<internal::MemoryMeter> memory;
  if (options.step_peak_on) {
    memory = internal::MemoryMeter::of(*options.step_peak_on);
    TORCH_CHECK(
        memory != nullptr, "PlanOptions::step_peak_on is ", options.step_peak_on->str(),
        ", whose memory ac2 cannot measure. Give the CPU, or an accelerator whose allocator keeps statistics, or "
        "leave it out.");
  }
  auto log =
      std::make_shared<StepLog>(internal::cost_source(options.modelled_costs),
                                memory != nullptr ? std::make_unique<internal::StepMeter>(std::move(memory)) : nullptr);
  // Under a budget even if it has no end: that changes which writes are recorded as ops that can be replayed.
  const auto budget = std::make_shared<internal::Budget>(options.recording_budget.value_or(kUnlimited).count(),
                                                         internal::cost_source(options.modelled_costs));
  internal::install_meta_kernels();
  // Not a constant policy: before an op runs it must be known that it may have to be recomputed.
  const Policy policy = [this, &log = *log](const OpContext& op) { return note(op, log); };
  const auto scope = internal::open_region(policy, {.budget = budget, .log = log});
  const std::shared_ptr<internal::Tape> tape = scope->region->tape;
  if (std::any_of(forms.begin(), forms.end(), [](const FormPtr& form) { return !form->is_exact(); })) {
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
    has_choices = lock->kept().has_choices();
    if (measured_forms) {
      measured_forms->mark(*log, graph);
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
  state_->forms = options.forms;
  const std::optional<uint8_t> copies = host_memory_in(options.forms);
  const CostSource costs = internal::cost_source(options.modelled_costs);
  if (options.forms.size() > (copies ? 1 : 0)) {
    state_->measured_forms.emplace(state_->forms, costs);
  }
  if (copies && !options.copy_bytes_per_forward) {
    state_->measured_copies.emplace(*FormAccess::copied_with(*options.forms[*copies]), costs);
  }
  const Devices devices = state_->record(step, options);
  state_->graph.in_flight = options.in_flight;
  const StepGraph& graph = state_->graph;
  TORCH_CHECK(!graph.hooks.empty(), "There is nothing to plan: the step ran ", graph.ops.size(),
              " ops on this thread that compute something, and autograd saved nothing for backward. A step must have a "
              "forward pass in it, with grad mode on and inputs or parameters that require gradients.");
  for (const StepGraph::Op& op : graph.ops) {
    state_->forward_cost += op.cost;
  }
  for (size_t form = 0; form < options.forms.size(); ++form) {
    state_->graph.forms.push_back(copies == form ? StepGraph::Queue::kCopies : StepGraph::Queue::kOps);
  }
  double bytes_per_cost = 0;
  if (copies) {
    mark_leaving(devices, *copies, FormAccess::copied_with(*options.forms[*copies])->min_bytes, state_->graph);
    bytes_per_cost = options.copy_bytes_per_forward ? *options.copy_bytes_per_forward / state_->forward_cost
                                                    : state_->measured_copies->bytes_per_cost();
    TORCH_CHECK(bytes_per_cost > 0,
                "The speed of copies to the host's memory could not be measured while the step was recorded: its "
                "results are on the meta device, too few of them are large enough, or the device's events cannot be "
                "timed. Give PlanOptions::copy_bytes_per_forward.");
  }
  state_->measured_copies.reset();
  state_->measured_forms.reset();
  state_->planner.emplace(graph);
  if (state_->readings) {
    state_->peak.emplace(graph, *std::move(state_->readings));
  }
  if (!options.forms.empty()) {
    state_->form_planner.emplace(graph, *state_->planner, bytes_per_cost);
  }
}

StepPlanner::~StepPlanner() = default;

Plan::Plan(std::shared_ptr<const PlannedStep> step) : Policy(internal::follow(step)), step_(std::move(step)) {}

const PlanSummary& Plan::summary() const {
  return step_->summary;
}

void Plan::save(const std::string& path) const {
  internal::write_plan(*step_, path);
}

Plan Plan::load(const std::string& path, const Forms& own) {
  internal::check_forms(own, "the list given to Plan::load()");
  return Plan(internal::read_plan(path, own));
}

Plan StepPlanner::plan(Bytes given) {
  const int64_t bytes = given.count();
  TORCH_CHECK(bytes > 0, "A plan's budget must be a positive number of bytes, but is ", bytes, ".");
  const std::optional<FormPlan> plan = state_->solve(bytes);
  TORCH_CHECK(plan, "No plan holds this step within ", bytes, " bytes: the smallest that was found takes ",
              state_->smallest_bytes(), ". Give it at least those, or give the scope a memory budget instead (",
              internal::spelled("ScopeOptions::memory_budget", "memory_budget="),
              "), under which ops are replayed more than once where they must be.");
  return ac2::Plan(state_->planned(*plan, bytes));
}

Plan StepPlanner::smallest() {
  return plan(std::max<int64_t>(state_->smallest().total_bytes, 1));
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
                  .bytes = state_->planner->simulator().uses().wanted_bytes(i),
                  .cost = graph.ops[i].cost};
      kept[i] = keeps(op) ? Keep::kWanted : Keep::kNothing;
    }
  }
  return state_->summary(state_->planner->evaluate(std::move(kept)));
}

PlanSummary StepPlanner::budget(Bytes given) {
  const int64_t bytes = given.count();
  TORCH_CHECK(bytes > 0, "A memory budget must be a positive number of bytes, but is ", bytes, ".");
  const internal::BudgetOutcome outcome = internal::BudgetPlayer(state_->graph).play(bytes);
  TORCH_CHECK(outcome.missing_bytes == 0, "This step cannot meet a memory budget of ", bytes,
              " bytes: at one place it holds ", outcome.missing_bytes,
              " at once, and what comes after may need more. The smallest plan that was found takes ",
              state_->smallest_bytes(), ".");
  TORCH_CHECK(!outcome.replays_without_end, "Under a memory budget of ", bytes,
              " bytes the ops of this step would run again more than ", internal::BudgetPlayer::kMostReplaysOfAnOp,
              " times on average: each replay drops what the next one needs. The smallest plan that was found takes ",
              state_->smallest_bytes(), ".");
  return {.forward_bytes = outcome.forward_bytes,
          .peak_bytes = outcome.peak_bytes,
          .replayed_ops = outcome.replays,
          .replay_cost = outcome.replay_cost,
          .forward_cost = state_->forward_cost};
}

Plan plan(const std::function<void()>& step, Bytes bytes, PlanOptions options) {
  TORCH_CHECK(bytes.count() > 0, "A plan's budget must be a positive number of bytes, but is ", bytes.count(), ".");
  if (!options.recording_budget) {
    options.recording_budget = bytes;
  }
  TORCH_CHECK(
      !options.step_peak_on,
      "PlanOptions::step_peak_on was given to ac2::plan(), which records the step within the plan's bytes, so "
      "that no peak of a step that keeps everything could be measured. Use StepPlanner(step, options).plan(bytes)"
      ", or leave step_peak_on out.");
  return StepPlanner(step, options).plan(bytes);
}

}  // namespace ac2

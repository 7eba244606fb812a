#include "examples/mesh/plan_mesh.h"

#include <algorithm>
#include <string>
#include <vector>

#include "examples/table.h"

namespace gpt {
namespace {

std::string percent(double part, double whole) {
  return fixed(100 * part / whole, 2) + " %";
}

std::string milliseconds(double seconds) {
  return fixed(1e3 * seconds, 3);
}

std::string gibibytes(int64_t bytes) {
  return fixed(static_cast<double>(bytes) / 0x1p30, 2);
}

// "12 x 96.00 MiB": calls, and the bytes of one on average.
std::string exchanged(const Exchanged& exchanged) {
  return exchanged.calls == 0 ? "0"
                              : std::to_string(exchanged.calls) + " x " + mebibytes(exchanged.bytes / exchanged.calls);
}

bool fits(const MeshPlan& plan, const StagePlan& stage, const PlannedStep& step) {
  return stage.state_bytes() + step.figures.peak_bytes <= plan.options.device_bytes;
}

void print_states(std::ostream& out, const MeshPlan& plan) {
  std::vector<std::vector<std::string>> rows;
  for (const StagePlan& stage : plan.stages) {
    rows.push_back({std::to_string(stage.stage), std::to_string(stage.layers),
                    fixed(static_cast<double>(stage.parameters) / 1e9, 3), gibibytes(stage.parameter_bytes),
                    gibibytes(stage.gradient_bytes), gibibytes(stage.optimizer_bytes),
                    std::to_string(stage.steps[0].figures.in_flight)});
  }
  print_table(out,
              {"stage", "layers", "billion parameters", "parameters, GiB", "gradients, GiB", "optimizer, GiB",
               "micro-batches in flight"},
              rows);
}

void print_steps(std::ostream& out, const MeshPlan& plan) {
  const MeshPlanOptions& options = plan.options;
  for (size_t i = 0; i < plan.stages[0].steps.size(); ++i) {
    std::vector<std::vector<std::string>> rows;
    for (const StagePlan& stage : plan.stages) {
      const PlannedStep& step = stage.steps[i];
      const StepFigures& figures = step.figures;
      const int64_t all = stage.state_bytes() + figures.peak_bytes;
      rows.push_back({std::to_string(stage.stage), step.name, gibibytes(figures.held_bytes),
                      gibibytes(figures.peak_bytes), gibibytes(all), fits(plan, stage, step) ? "yes" : "no",
                      std::to_string(figures.replayed_ops),
                      fixed(100 * step.summary.replay_cost / step.summary.forward_cost, 1) + " %",
                      gibibytes(figures.tensor.bytes_by_ring(options.mesh.tensor)),
                      percent(adds_to_step(plan, stage.stage, step), plan.times.step)});
    }
    out << '\n';
    print_table(out,
                {"stage", "variant", "held, GiB", "peak, GiB", "with parameters and so on, GiB", "fits", "replayed ops",
                 "replayed of forward", "sent to the tensor group, GiB", "adds to the step"},
                rows);
  }
}

void print_times(std::ostream& out, const MeshPlan& plan) {
  std::vector<std::vector<std::string>> rows;
  for (const StagePlan& stage : plan.stages) {
    const PlannedStep& step = plan.chosen[stage.stage];
    const double waits = plan.times.waits[stage.stage];
    rows.push_back({std::to_string(stage.stage), step.name, gibibytes(stage.state_bytes() + step.figures.peak_bytes),
                    milliseconds(step.times.forward), milliseconds(step.times.backward),
                    milliseconds(step.times.to_next), milliseconds(step.times.after),
                    milliseconds(plan.times.step - waits), percent(waits, plan.times.step),
                    gibibytes(step.host_bytes)});
  }
  out << "\nWith the plan of each stage that is named here a step takes " << milliseconds(plan.times.step)
      << " ms:\n\n";
  print_table(out,
              {"stage", "chosen", "with parameters and so on, GiB", "forward, ms", "backward, ms", "to the next, ms",
               "optimizer, ms", "busy, ms", "waits", "in the host's memory, GiB"},
              rows);
  for (const StagePlan& stage : plan.stages) {
    if (!stage.beyond_host) continue;
    out << "\nIn stage " << stage.stage << " \"" << stage.beyond_host->name << "\" would add "
        << percent(adds_to_step(plan, stage.stage, *stage.beyond_host), plan.times.step) << " to the step, but copies "
        << gibibytes(stage.beyond_host->host_bytes) << " GiB, and a device's share of the host's memory is "
        << gibibytes(host_bytes_of_device(plan.options)) << " GiB.\n";
  }
  rows.clear();
  for (size_t i = 0; i + 1 < plan.stages[0].steps.size(); ++i) {
    size_t fitting = 0;
    for (const StagePlan& stage : plan.stages) fitting += fits(plan, stage, stage.steps[i]) ? 1 : 0;
    const PipelineTimes times = times_of_variant(plan, i);
    rows.push_back({plan.stages[0].steps[i].name, std::to_string(fitting) + " of " + std::to_string(plan.stages.size()),
                    milliseconds(times.step), percent(times.step - plan.times.step, plan.times.step),
                    percent(*std::min_element(times.waits.begin(), times.waits.end()), times.step)});
  }
  out << '\n';
  print_table(out, {"in all stages", "stages that it fits", "step, ms", "more than chosen", "the slowest stage waits"},
              rows);
}

void print_traffic(std::ostream& out, const MeshPlan& plan) {
  std::vector<std::vector<std::string>> rows;
  for (const StagePlan& stage : plan.stages) {
    const auto add = [&](const PlannedStep& step) {
      const StepFigures& f = step.figures;
      rows.push_back({std::to_string(stage.stage), step.name, exchanged(f.tensor.all_reduce),
                      exchanged(f.tensor.all_gather), exchanged(f.tensor.reduce_scatter),
                      exchanged(f.context.all_gather), exchanged(f.context.reduce_scatter),
                      exchanged(f.replicas.all_reduce), exchanged(f.replicas.reduce_scatter),
                      exchanged(f.replicas.all_gather), exchanged(f.pipeline.sent)});
    };
    add(stage.steps[0]);
    for (size_t i = 1; i < stage.steps.size(); ++i) {
      const StepFigures &step = stage.steps[i].figures, &before = stage.steps[i - 1].figures;
      if (!(step.tensor == before.tensor) || !(step.context == before.context)) add(stage.steps[i]);
    }
  }
  out << '\n';
  print_table(out,
              {"stage", "variant", "tensor all-reduces", "tensor all-gathers", "tensor reduce-scatters",
               "context all-gathers", "context reduce-scatters", "gradient all-reduces", "gradient reduce-scatters",
               "parameter all-gathers", "sent to other stages"},
              rows);
}

}  // namespace

void print_mesh_plan(std::ostream& out, const MeshPlan& plan) {
  const MeshPlanOptions& options = plan.options;
  const DeviceMesh& mesh = options.mesh;
  out << options.model.name << ", " << c10::toString(options.model.dtype) << ", on " << mesh.ranks()
      << " devices: " << mesh.data << " (data) x " << mesh.context << " (context) x " << mesh.tensor << " (tensor) x "
      << mesh.pipeline << " (pipeline); " << options.micro_batches << " micro-batches of " << options.batch << " x "
      << options.model.context << " tokens for each of the data axis.\n\nEach device of a stage, and of a step:\n\n";
  print_states(out, plan);
  print_steps(out, plan);
  print_times(out, plan);
  print_traffic(out, plan);
  out << "\nHeld: by all tensors beyond parameters, gradients and the optimizer's, when the most micro-batches wait "
         "for\n"
         "their backward. Peak: the most of that in a step, without what kernels take while they run. Variants that "
         "are\n"
         "not listed in the last table have the collectives of the one above. Costs and times come from shapes. A "
         "variant\n"
         "adds to the step what the step takes longer if the stage has it in place of the chosen plan.\n";
}

}  // namespace gpt

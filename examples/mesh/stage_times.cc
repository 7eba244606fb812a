#include "examples/mesh/stage_times.h"

#include <ATen/ATen.h>

#include <cmath>

#include "ac2/plan.h"
#include "examples/mesh/backward_later.h"

namespace gpt {
namespace {

// How many operations a product has for each unit of the planner's modelled costs.
double operations_of_a_cost() {
  static const double operations = [] {
    constexpr int64_t kSize = 4096;
    const auto meta = at::TensorOptions().device(at::kMeta);
    const at::Tensor x = at::empty({kSize, kSize}, meta).requires_grad_();
    const at::Tensor gradient = at::empty({kSize, kSize}, meta);
    ac2::StepPlanner planner([&] { BackwardLater(x.mm(x).mm(x)).run(gradient); });
    return 2 * 2 * std::pow(static_cast<double>(kSize), 3) /
           planner.summarize([](const auto&) { return true; }).forward_cost;
  }();
  return operations;
}

// Bytes in a second, to the group along an axis.
double rate(const MeshPlanOptions& options, MeshAxis axis) {
  return is_within_nodes(options.mesh, axis, options.devices_per_node) ? options.link_bytes : options.network_bytes;
}

double seconds_of(const Traffic& traffic, const MeshPlanOptions& options, MeshAxis axis) {
  return static_cast<double>(traffic.bytes_by_ring(options.mesh.along(axis))) / rate(options, axis);
}

// Of what a micro-batch sends to the next stage, or to the one before.
double seconds_between_stages(const MeshPlanOptions& options, const Stage& stage) {
  const int64_t numbers = c10::multiply_integers(stage.hidden_sizes(options.batch));
  return static_cast<double>(numbers * static_cast<int64_t>(c10::elementSize(options.model.dtype))) /
         rate(options, MeshAxis::kPipeline);
}

}  // namespace

StageTimes modelled_times(const MeshPlanOptions& options, const Stage& stage, const StepFigures& figures,
                          const ac2::PlanSummary& summary) {
  const auto micro_batches = static_cast<double>(options.micro_batches);
  const double cost = operations_of_a_cost() / options.flops;
  double waiting = 0;
  for (const ac2::PlanSummary::Use& use : summary.uses) waiting += use.cost;
  const double in_forward = seconds_of(figures.tensor_in_forward, options, MeshAxis::kTensor) +
                            seconds_of(figures.context_in_forward, options, MeshAxis::kContext);
  const double in_optimizer = seconds_of(figures.tensor_in_optimizer, options, MeshAxis::kTensor);
  const double in_backward = seconds_of(figures.tensor, options, MeshAxis::kTensor) +
                             seconds_of(figures.context, options, MeshAxis::kContext) - in_forward - in_optimizer;
  return {.forward = summary.forward_cost * cost + in_forward / micro_batches,
          .backward = (2 * summary.forward_cost + summary.replay_cost + waiting) * cost + in_backward / micro_batches,
          .to_next = stage.is_last() ? 0 : seconds_between_stages(options, stage),
          .to_before = stage.is_first() ? 0 : seconds_between_stages(options, stage),
          .after = in_optimizer + seconds_of(figures.replicas, options, MeshAxis::kReplicas)};
}

}  // namespace gpt

#include "examples/mesh/regions.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <memory>

#include "ac2/scope.h"

namespace gpt {
namespace {

ac2::Policy gather_again() {
  return ac2::Policy::by_operator([](const c10::OperatorHandle& op) {
    return op.operator_name().name == "_c10d_functional::all_gather_into_tensor" ? ac2::CheckpointPolicy::MUST_RECOMPUTE
                                                                                 : ac2::CheckpointPolicy::PREFER_SAVE;
  });
}

}  // namespace

at::Tensor forward_in_regions(const Stage& stage, const at::Tensor& input, const at::Tensor& targets,
                              const Regions& regions, Traces* traces) {
  bool is_in_region = false;
  const auto open = [&](const ac2::Policy& policy) {
    auto scope = std::make_unique<ac2::PolicyScope>(policy);
    if (traces != nullptr && !is_in_region) traces->push_back(scope->trace());
    return scope;
  };
  const auto around_all = regions.around_all ? open(*regions.around_all) : nullptr;
  is_in_region = around_all != nullptr;
  const std::optional<ac2::Policy> gathers = regions.gather_again ? std::optional(gather_again()) : std::nullopt;
  return stage.forward(input, targets, [&](const auto& layer) {
    // The outer one, because the last of two preferences counts.
    const auto around_gathers = gathers ? open(*gathers) : nullptr;
    if (!regions.by_layer) return layer();
    const bool had_region = is_in_region;
    is_in_region |= around_gathers != nullptr;
    const auto around_layer = open(*regions.by_layer);
    is_in_region = had_region;
    const at::Tensor output = layer();
    // A wider region, such as the planner's, treats it as these regions do: the next layer's input is there.
    ac2::tag_with_policy(output, ac2::CheckpointPolicy::MUST_SAVE);
    return output;
  });
}

}  // namespace gpt

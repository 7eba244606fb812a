// Where the regions of a stage are, and under which policies.
//
//   const Regions plain;                                          // none
//   const Regions by_layer{.by_layer = "recompute_all"};          // one around each layer of each micro-batch
//   const Regions planned{.around_all = plan.policy};             // one around each micro-batch, from input to output
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "ac2/policy.h"
#include "examples/checkpointing.h"
#include "examples/mesh/stage.h"

namespace gpt {

struct Regions {
  std::optional<ac2::Policy> around_all = std::nullopt;
  std::optional<ac2::Policy> by_layer = std::nullopt;
  // In a scope around each layer too: results of all-gathers are not saved but gathered again in backward, as
  // Megatron-LM does with Stage's `sequence`. By default no collective is repeated.
  bool gather_again = false;
};

// Stage::forward(). The traces of the regions that it opens are added to `traces` unless that is null.
at::Tensor forward_in_regions(const Stage& stage, const at::Tensor& input, const at::Tensor& targets,
                              const Regions& regions, Traces* traces);

}  // namespace gpt

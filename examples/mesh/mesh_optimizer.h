// Adam for the parameters of a stage, with weights and moments in float, over all processes that have them
// (MeshGroups::replicas).
//
//   MeshOptimizer optimizer(stage, {.sharded = true});
//   …backward of all micro-batches adds to the gradients…
//   optimizer.step();                   // reduces the gradients, updates the parameters, and sets the gradients to 0
//
// Sharded, each of these processes has its part of the optimizer's tensors (arXiv 1910.02054): a reduce-scatter
// of gradients and an all-gather of parameters take the place of an all-reduce. The gradients and parameters of a unit
// of the stage, a layer say, are exchanged together.
//
// Threads: one.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "examples/mesh/stage.h"

namespace gpt {

struct MeshOptimizerOptions {
  bool sharded = true;
  double learning_rate = 1e-3;
};

class MeshOptimizer {
 public:
  // Gives each parameter a gradient of zeros.
  MeshOptimizer(const Stage& stage, const MeshOptimizerOptions& options);

  void step();

  int64_t parameters() const { return parameters_; }
  int64_t parameter_bytes() const;  // and so those of gradients
  int64_t state_bytes() const;      // of the optimizer's own tensors

 private:
  struct State {
    at::Tensor weights, mean, square;
  };
  // As one tensor, with zeros behind it so that the replicas can share it.
  at::Tensor flat(const std::vector<at::Tensor>& tensors) const;
  void sum_gradients_seen_in_parts();
  void update(const std::vector<at::Tensor>& unit, State& state);

  const Stage& stage_;
  MeshOptimizerOptions options_;
  std::vector<State> states_;  // by unit
  int64_t parameters_ = 0;
  int64_t steps_ = 0;
};

}  // namespace gpt

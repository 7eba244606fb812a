// Training a module plain and in a region, and comparing everything.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "tests/support/regions.h"

namespace ac2::test {

struct Training {
  Tensors outputs, parameter_gradients, input_gradients, buffers_after_forward, buffers_after_backward;
  at::Tensor generator;
};

// Two steps of `forward` on a module made by `make`, in regions under `policy` if it is not null.
// Two, so that the second sees the statistics that the first one left.
template <class Module>
Training train(const std::function<Module()>& make, const std::function<Tensors(Module&, const Tensors&)>& forward,
               const Tensors& inputs, const Policy* policy, Stats* stats) {
  Training result;
  torch::manual_seed(11);
  Module module = make();
  for (int step = 0; step < 2; ++step) {
    Tensors leaves;
    for (const at::Tensor& t : inputs) leaves.push_back(leaf_like(t));
    Tensors outputs;
    std::shared_ptr<const Trace> trace;
    if (policy != nullptr) {
      PolicyScope scope(*policy);
      trace = scope.trace();
      outputs = forward(module, leaves);
    } else {
      outputs = forward(module, leaves);
    }
    for (const at::Tensor& buffer : module->buffers()) {
      result.buffers_after_forward.push_back(buffer.clone());
    }
    if (trace) stats->forward = trace->stats();
    at::Tensor loss;
    for (const at::Tensor& output : outputs) {
      result.outputs.push_back(output.detach().clone());
      at::Tensor weights = at::arange(1, output.numel() + 1, at::kFloat).cos().view(output.sizes());
      at::Tensor term = (output * weights).sum();
      loss = loss.defined() ? loss + term : term;
    }
    outputs.clear();  // the region's outputs die, as they do in most programs
    loss.backward();
    for (const at::Tensor& leaf : leaves) result.input_gradients.push_back(leaf.grad());
    if (trace) stats->backward = trace->stats();
  }
  for (const at::Tensor& p : module->parameters()) result.parameter_gradients.push_back(p.grad());
  for (const at::Tensor& b : module->buffers()) result.buffers_after_backward.push_back(b.clone());
  result.generator = generator_state();
  return result;
}

// The statistics of the second step.
template <class Module>
Stats expect_same_training(const std::function<Module()>& make,
                           const std::function<Tensors(Module&, const Tensors&)>& forward, const Tensors& inputs,
                           Policy policy = "recompute_all") {
  Training plain = train<Module>(make, forward, inputs, nullptr, nullptr);
  Stats stats;
  {
    Training actual = train<Module>(make, forward, inputs, &policy, &stats);
    expect_same_bits(actual.outputs, plain.outputs, "output");
    expect_same_bits(actual.parameter_gradients, plain.parameter_gradients, "parameter gradient");
    expect_same_bits(actual.input_gradients, plain.input_gradients, "input gradient");
    expect_same_bits(actual.buffers_after_forward, plain.buffers_after_forward, "buffer");
    expect_same_bits(actual.buffers_after_backward, plain.buffers_after_backward, "buffer, later");
    EXPECT_TRUE(same_bits(actual.generator, plain.generator));
  }
  EXPECT_EQ(stats.backward.recomputed_bytes, 0);
  expect_nothing_left();
  return stats;
}

}  // namespace ac2::test

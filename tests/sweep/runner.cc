#include "tests/sweep/runner.h"

#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>

#include <memory>
#include <unordered_set>
#include <utility>
#include <vector>

namespace ac2::test::sweep {

namespace {

constexpr uint64_t kSeed = 20260101;

Tensors snapshots(const Tensors& tensors) {
  const DisableCheckpointing off;
  Tensors copies;
  for (const at::Tensor& t : tensors) copies.push_back(t.defined() ? t.detach().clone() : t);
  return copies;
}

void append(Tensors& to, const Tensors& more) {
  to.insert(to.end(), more.begin(), more.end());
}

Tensors clones(const Tensors& tensors) {
  Tensors copies;
  for (const at::Tensor& t : tensors) copies.push_back(t.clone());
  return copies;
}

bool is_differentiable_type(const at::Tensor& t) {
  return t.defined() && (t.is_floating_point() || t.is_complex());
}

// The rest of a program, for results that require gradients.
Tensors consumed(const Tensors& results) {
  Tensors ends;
  for (const at::Tensor& t : results) {
    if (is_differentiable_type(t) && t.requires_grad()) ends.push_back(t.sin());
  }
  return ends;
}

// The same for results that were computed without: `scale` requires a gradient, which needs them.
Tensors scaled(const Tensors& results, const at::Tensor& scale) {
  Tensors ends;
  for (const at::Tensor& t : results) {
    if (is_differentiable_type(t)) ends.push_back((t.is_inference() ? t.clone() : t) * scale);
  }
  return ends;
}

Out call(const Case& row, const Tensors& inputs, Stretch stretch) {
  switch (stretch) {
    case Stretch::kNoGrad: {
      const at::NoGradGuard guard;
      return row.fn(inputs);
    }
    case Stretch::kInference: {
      const c10::InferenceMode guard;
      return row.fn(inputs);
    }
    case Stretch::kNone:
      break;
  }
  return row.fn(inputs);
}

// The error that `fn` throws, up to the end of its first line; empty if it throws nothing.
template <class Fn>
std::string error_in(Fn&& fn) {
  try {
    fn();
  } catch (const c10::Error& error) {
    const std::string message = error.what_without_backtrace();
    return message.substr(0, message.find('\n'));
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

at::Tensor weights_for(const at::Tensor& t, double step) {
  at::Tensor angles = at::arange(1, t.numel() + 1, at::kDouble).mul(step).view(t.sizes());
  if (t.is_complex()) return at::complex(angles.cos(), angles.sin()).to(t.scalar_type());
  return angles.cos().to(t.scalar_type());
}

// Gradients of `ends`, unevenly weighted.
Tensors gradients(const Tensors& ends, const Tensors& leaves, bool retain_graph, bool create_graph) {
  Tensors weights;
  for (const at::Tensor& end : ends) weights.push_back(weights_for(end, 0.37));
  return torch::autograd::grad(ends, leaves, weights, retain_graph, create_graph, /*allow_unused=*/true);
}

void differentiate_twice(Result& result, const Tensors& ends, const Tensors& leaves) {
  const Tensors first = gradients(ends, leaves, true, true);
  append(result.gradients, snapshots(first));
  Tensors connected;
  for (const at::Tensor& t : first) {
    if (t.defined() && t.requires_grad()) connected.push_back(t);
  }
  TORCH_CHECK(!connected.empty(), "the gradients depend on no input");
  result.second_gradients = snapshots(gradients(connected, leaves, false, false));
}

void differentiate(Result& result, const Tensors& ends, const Tensors& leaves, Backward backward) {
  if (ends.empty() || leaves.empty() || backward == Backward::kNone) return;
  if (backward == Backward::kSecond) {
    differentiate_twice(result, ends, leaves);
    return;
  }
  if (backward == Backward::kTwice) append(result.gradients, snapshots(gradients(ends, leaves, true, false)));
  append(result.gradients, snapshots(gradients(ends, leaves, false, false)));
}

// A backward that fails leaves the rest of its tasks, and with them its graph, in the thread's queue until the next
// one.
void empty_the_engines_queue() {
  const at::AutoGradMode on(true);
  const at::Tensor x = at::ones({}).requires_grad_(true);
  torch::autograd::grad({x.neg()}, {x});
}

// An op that writes a tensor it has saved itself (mul_ by itself) makes plain LibTorch's graph a cycle. A backward that
// comes to its end breaks it; one that throws does not.
void break_cycles(const Tensors& ends) {
  std::vector<decltype(torch::autograd::Edge::function)> nodes;
  for (const at::Tensor& end : ends) nodes.push_back(end.grad_fn());
  std::unordered_set<torch::autograd::Node*> seen;
  while (!nodes.empty()) {
    const auto node = std::move(nodes.back());
    nodes.pop_back();
    if (node == nullptr || !seen.insert(node.get()).second) continue;
    node->release_variables();
    for (const torch::autograd::Edge& edge : node->next_edges()) nodes.push_back(edge.function);
  }
}

uint64_t mixed(uint64_t x) {  // splitmix64's finaliser
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace

Result run(const Case& row, const Tensors& inputs, const Plan& plan, const Policy* policy) {
  Result result;
  Tensors leaves, differentiated;
  for (const at::Tensor& t : inputs) {
    leaves.push_back(leaf_like(t));
    if (t.requires_grad()) differentiated.push_back(leaves.back());
  }
  const at::Tensor scale = at::scalar_tensor(1.25, at::kDouble).requires_grad_(plan.stretch != Stretch::kNone);
  if (plan.stretch != Stretch::kNone) differentiated = {scale};

  at::manual_seed(kSeed);
  Tensors arguments = plan.inputs_from_outside ? clones(leaves) : Tensors();
  std::optional<PolicyScope> scope;
  if (policy != nullptr) {
    scope.emplace(*policy);
    result.trace = scope->trace();
  }
  if (!plan.inputs_from_outside) arguments = clones(leaves);
  Tensors ends, alive;
  result.error = error_in([&] {
    const Out out = call(row, arguments, plan.stretch);
    arguments.clear();
    result.outputs = snapshots(out.tensors);
    if (plan.results_alive) alive = out.tensors;
    ends = plan.stretch == Stretch::kNone ? consumed(out.tensors) : scaled(out.tensors, scale);
    for (const at::Tensor& t : out.leaves) {
      if (plan.stretch == Stretch::kNone && t.requires_grad()) differentiated.push_back(t);
    }
  });
  arguments.clear();
  append(result.outputs, snapshots(ends));
  result.generator_after_forward = generator_state();
  result.differentiable = !ends.empty();
  if (!plan.backward_inside) scope.reset();
  if (result.trace) result.stats.forward = result.trace->stats();
  if (result.error.empty()) {
    result.error = error_in([&] { differentiate(result, ends, differentiated, plan.backward); });
    scope.reset();
    if (!result.error.empty()) {
      empty_the_engines_queue();
      if (policy == nullptr) break_cycles(ends);
    }
  }
  scope.reset();
  result.generator_after_backward = generator_state();
  if (result.trace) result.stats.backward = result.trace->stats();
  return result;
}

Comparison expect_same(const Case& row, const Plan& plan, const Policy& policy) {
  const Tensors inputs = row.inputs();
  Comparison both;
  both.inputs = inputs.size();
  both.plain = run(row, inputs, plan, nullptr);
  both.region = run(row, inputs, plan, &policy);
  const Result &plain = both.plain, &region = both.region;
  EXPECT_EQ(region.error, plain.error);
  expect_same_bits(region.outputs, plain.outputs, "output");
  expect_same_bits(region.gradients, plain.gradients, "gradient");
  expect_same_bits(region.second_gradients, plain.second_gradients, "second gradient");
  EXPECT_TRUE(same_bits(region.generator_after_forward, plain.generator_after_forward));
  EXPECT_TRUE(same_bits(region.generator_after_backward, plain.generator_after_backward));
  const TraceStats left = region.trace->stats();
  EXPECT_EQ(left.live_nodes, 0);
  EXPECT_EQ(left.saved_bytes, 0);
  EXPECT_EQ(left.recomputed_bytes, 0);
  return both;
}

Policy picking_at_random(uint64_t seed) {
  return [seed](const OpContext& op) -> PolicyDecision {
    switch (mixed(mixed(seed) + static_cast<uint64_t>(op.index())) % 5) {
      case 0:
        return CheckpointPolicy::MUST_SAVE;
      case 1:
        return CheckpointPolicy::PREFER_SAVE;
      case 2:
        return CheckpointPolicy::MUST_RECOMPUTE;
      case 3:
        return CheckpointPolicy::PREFER_RECOMPUTE;
      default:
        return SaveWithHooks{[](const at::Tensor& t) { return c10::IValue(t.clone()); },
                             [](const c10::IValue& packed) { return packed.toTensor(); }};
    }
  };
}

}  // namespace ac2::test::sweep

// Three training steps with and without a region, in a project of its own that finds ac2 by find_package().
#include <ATen/ATen.h>

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <optional>

#include "ac2/ac2.h"
#include "policies/policies.h"

namespace {

struct Trained {
  at::Tensor weights;
  int64_t recomputed = 0;  // ops
};

Trained train(bool in_regions) {
  at::manual_seed(0);
  const at::Tensor x = at::randn({8, 64});
  Trained trained{at::randn({64, 64}).mul_(0.1).requires_grad_()};
  for (int step = 0; step < 3; ++step) {
    at::Tensor& w = trained.weights;
    std::optional<ac2::PolicyScope> scope;
    if (in_regions) scope.emplace(ac2::policies::save_compute_intensive());
    const at::Tensor loss = at::gelu(x.matmul(w)).tanh().matmul(w).sum();
    const auto trace = scope ? scope->trace() : nullptr;
    loss.backward();
    if (trace) trained.recomputed += trace->stats().recomputed_ops;
    scope.reset();
    const at::NoGradGuard no_grad;
    w.sub_(w.grad(), 0.01);
    w.mutable_grad().reset();
  }
  return trained;
}

}  // namespace

int main() {
  const Trained plain = train(false), checkpointed = train(true);
  const bool equal = at::equal(plain.weights, checkpointed.weights);
  std::cout << "weights " << (equal ? "equal" : "DIFFERENT") << ", " << checkpointed.recomputed << " ops recomputed\n";
  return equal && checkpointed.recomputed > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

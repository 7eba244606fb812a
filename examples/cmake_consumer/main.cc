// Gradients with and without a region, in a project of its own that finds ac2 by find_package().
#include <ATen/ATen.h>

#include <cstdint>
#include <cstdlib>
#include <iostream>

#include "ac2/ac2.h"
#include "policies/policies.h"

int main() {
  const at::Tensor x = at::randn({8, 64}), w = at::randn({64, 64}).requires_grad_();
  const auto loss = [&] { return at::gelu(x.matmul(w)).tanh().matmul(w).sum(); };
  loss().backward();
  const at::Tensor plain = w.grad().clone();
  w.mutable_grad().reset();

  at::Tensor checkpointed;
  int64_t recomputed = 0;
  {
    ac2::PolicyScope scope(ac2::policies::save_compute_intensive());
    checkpointed = loss();
    const auto trace = scope.trace();
    checkpointed.backward();
    recomputed = trace->stats().recomputed_ops;
  }
  const bool equal = at::equal(plain, w.grad());
  std::cout << "gradients " << (equal ? "equal" : "DIFFERENT") << ", " << recomputed << " ops recomputed\n";
  return equal && recomputed > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

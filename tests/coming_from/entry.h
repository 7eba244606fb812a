// The fixture of the tests of docs/coming_from.md: it runs an entry's program with a region, and without one.
#pragma once

#include <torch/nn/module.h>

#include <functional>
#include <memory>

#include "ac2/ac2.h"
#include "tests/support/regions.h"

namespace ac2::test {

constexpr int64_t kTensorBytes = 4 * 4 * 4;  // of x, w, and each result below

class EntryTest : public CleanTest {
 protected:
  using Program = std::function<at::Tensor()>;

  // Runs both from the same random state, and expects the same outputs, gradients of `leaves` and of the generator's
  // state. `ours` calls watch(), if the statistics matter; they are those of its last region.
  Stats expect_same(const Program& ours, const Program& plain, const Tensors& leaves);
  // The same, and exactly `recomputed_ops` ops of the region are replayed.
  void expect_same_and_replays(const Program& ours, const Program& plain, const Tensors& leaves,
                               int64_t recomputed_ops);
  // Two products of `policy`'s region, and what it then holds and replays.
  Stats run_products(const Policy& policy);

  void watch(const PolicyScope& scope) { trace = scope.trace(); }

  std::shared_ptr<const Trace> trace;
  at::Tensor x = sample({4, 4});
  at::Tensor w = sample({4, 4});
};

// The parameters, and x.
Tensors leaves_of(const torch::nn::Module& module, const at::Tensor& x);

// cos(sin(x)): backward wants x, which is there, and sin(x).
at::Tensor wave(const at::Tensor& x);
// cos(sin(x · w) · w): backward wants x, w, and three of the four results, two of them products.
at::Tensor products(const at::Tensor& x, const at::Tensor& w);

}  // namespace ac2::test

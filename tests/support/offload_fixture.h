// The common part of the tests of offloading: programs on the fake accelerator, plain and in regions that offload.
#pragma once

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ac2/offload.h"
#include "ac2/scope.h"
#include "tests/support/fake_accelerator.h"
#include "tests/support/regions.h"
#include "tests/support/wait_for_engine.h"
#include "tests/support/warnings.h"

namespace ac2::test {

// Offloads whatever is needed, however small.
inline OffloadOptions all_sizes(OffloadOptions options = {}) {
  options.min_bytes = 0;
  return options;
}

// Checks, beside what CleanTest does, that every access was ordered and that nothing is left: no device or pinned
// memory, no event, no copy.
class OffloadTest : public CleanTest {
 protected:
  void SetUp() override {
    CleanTest::SetUp();
    fake_.restart();
  }
  void TearDown() override {
    wait_for_engine(fake_.device());
    CleanTest::TearDown();
    expect_nothing_left_on_device();
  }

  void expect_nothing_left_on_device() {
    EXPECT_EQ(offload_memory().bytes_in_use, 0);
    fake_.finish();
    release_offload_memory();
    EXPECT_EQ(fake_.take_errors(), std::vector<std::string>());
    EXPECT_EQ(device_bytes(), 0);
    EXPECT_EQ(fake_.pinned_bytes(), 0);
    EXPECT_EQ(fake_.live_events(), 0);
    EXPECT_EQ(offload_memory().bytes, 0);
  }

  // A leaf there with the values of `t`.
  at::Tensor leaf(const at::Tensor& t) {
    return t.detach().to(fake_.device()).detach().requires_grad_(t.requires_grad());
  }

  int64_t device_bytes() {
    const DisableCheckpointing plain;
    wait_for_engine(fake_.device());
    return fake_.device_bytes();
  }

  struct Run {
    Tensors results;  // outputs and gradients, on the CPU
    Stats stats;
    int64_t synchronisations = 0;
  };

  // `fn` on copies of `inputs`, in a region unless `options` is null, and a backward of its outputs, which are dead by
  // then but for the first.
  Run run(const TensorFn& fn, const Tensors& inputs, const Policy& policy,
          const std::optional<OffloadOptions>& options) {
    Tensors leaves;
    for (const at::Tensor& t : inputs) leaves.push_back(leaf(t));
    at::manual_seed(17);
    Run run;
    const int64_t before = fake_.synchronisations();
    std::shared_ptr<const Trace> trace;
    at::Tensor loss;
    {
      std::optional<PolicyScope> scope;
      Tensors outputs;
      if (options) {
        scope.emplace(policy, ScopeOptions{.offload = options});
        trace = scope->trace();
      }
      outputs = fn(leaves);
      scope.reset();
      if (trace) run.stats.forward = trace->stats();
      for (const at::Tensor& output : outputs) {
        const at::Tensor term = (output * output).sum();
        loss = loss.defined() ? loss + term : term;
      }
      run.results.push_back(outputs[0].detach());
    }
    Tensors wanted;
    for (const at::Tensor& t : leaves) {
      if (t.requires_grad()) wanted.push_back(t);
    }
    for (const at::Tensor& gradient : torch::autograd::grad({loss}, wanted)) run.results.push_back(gradient);
    if (trace) run.stats.backward = trace->stats();
    run.synchronisations = fake_.synchronisations() - before;
    for (at::Tensor& result : run.results) result = result.cpu();
    return run;
  }

  // Bitwise the same gradients, no synchronisation, nothing held at the end.
  Stats expect_same_as_plain(const TensorFn& fn, const Tensors& inputs, const Policy& policy,
                             const OffloadOptions& options) {
    const Run plain = run(fn, inputs, policy, std::nullopt);
    const Run offloaded = run(fn, inputs, policy, options);
    expect_same_bits(offloaded.results, plain.results, "result");
    EXPECT_EQ(offloaded.synchronisations, plain.synchronisations);
    EXPECT_EQ(offloaded.stats.backward.offloaded_bytes, 0);
    EXPECT_EQ(offloaded.stats.backward.saved_bytes, 0);
    EXPECT_EQ(offloaded.stats.backward.recomputed_bytes, 0);
    return offloaded.stats;
  }

  FakeAccelerator& fake_ = FakeAccelerator::install();
};

// Of every tensor here: what pinned memory is rounded up to.
inline constexpr int64_t kBytes = 512;
inline constexpr int64_t kNumbers = kBytes / 4;

inline at::Tensor gradient_of_sum(const at::Tensor& y, const at::Tensor& x, bool retain_graph = false) {
  return torch::autograd::grad({y}, {x}, {at::ones_like(y)}, retain_graph)[0];
}

class OffloadBytesTest : public OffloadTest {
 protected:
  // A region around sines(x, count) that offloads all, its trace, and the result.
  at::Tensor offloaded_sines(int count, const OffloadOptions& options,
                             Policy policy = CheckpointPolicy::MUST_CPU_OFFLOAD) {
    PolicyScope scope(std::move(policy), {.offload = all_sizes(options)});
    trace_ = scope.trace();
    return sines(x_, count);
  }
  TraceStats stats() const { return trace_->stats(); }
  void expect_right_gradient(const at::Tensor& y, int count) {
    const at::Tensor actual = gradient_of_sum(y, x_).cpu();
    EXPECT_TRUE(same_bits(actual, gradient_of_sum(sines(x_, count), x_).cpu()));
  }
  void TearDown() override {
    x_ = at::Tensor();
    trace_.reset();
    OffloadTest::TearDown();
  }

  at::Tensor x_ = leaf(sample({kNumbers}));
  std::shared_ptr<const Trace> trace_;
};

}  // namespace ac2::test

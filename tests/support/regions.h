// The common part of the tests of regions: inputs, gradients, bit-for-bit comparison, and the fixture that
// checks that nothing is left behind.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

#include "ac2/policy.h"
#include "ac2/scope.h"
#include "ac2/trace.h"

namespace ac2::test {

using Tensors = std::vector<at::Tensor>;
using TensorFn = std::function<Tensors(const Tensors&)>;

// Starts every test from the same random state, and checks after it that no op node is left and
// that the thread is as it was before.
class CleanTest : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;
};

// No node alive, no scope open, nothing being replayed.
void expect_nothing_left();

// Normally distributed values from a generator of the tests' own, so that the default one is
// untouched. `sample` requires a gradient, `constant` does not.
at::Tensor sample(at::IntArrayRef sizes, at::ScalarType type = at::kFloat);
at::Tensor constant(at::IntArrayRef sizes, at::ScalarType type = at::kFloat);
// A leaf with t's values in storage of its own; it requires a gradient if t does.
at::Tensor leaf_like(const at::Tensor& t);

// x.sin().sin() and so on: n ops, of which each one's backward needs its input.
at::Tensor sines(at::Tensor x, int n);

// Same type, sizes, strides and bits (NaNs and signs of zeros included); or both undefined.
::testing::AssertionResult same_bits(const at::Tensor& actual, const at::Tensor& expected);
void expect_same_bits(const Tensors& actual, const Tensors& expected, const char* what);

// Gradients of `outputs` under fixed, uneven output gradients; undefined where there is none.
Tensors gradients_of(const Tensors& outputs, const Tensors& inputs, bool retain_graph = false);
at::Tensor gradient_of(const at::Tensor& output, const at::Tensor& input, bool retain_graph = false);

// The state of the default CPU generator, and of the current GPU's if there is one.
at::Tensor generator_state();

struct Stats {
  TraceStats forward;   // when the region was closed
  TraceStats backward;  // when backward was done
};

// Runs `fn` plain and then inside a region, both from the same seed and on copies of `inputs`, and
// expects the same outputs, gradients, (changed) inputs and generator states. The outputs stay
// alive in backward: an op that needs its own output finds it. At the end nothing is held.
Stats expect_same_gradients(const TensorFn& fn, const Tensors& inputs, Policy policy = "recompute_all");
// The same, and exactly `recomputed_ops` ops are replayed.
void expect_same_gradients_and_replays(const TensorFn& fn, const Tensors& inputs, int64_t recomputed_ops,
                                       Policy policy = "recompute_all");

// MUST_SAVE for these ops (as OpContext::is() takes them), PREFER_RECOMPUTE for the others.
Policy saving(std::vector<std::string> ops);

// The message of the c10::Error that `fn` throws; fails the test if it throws none.
std::string error_of(const std::function<void()>& fn);
// `fn` throws a c10::Error whose message has all of `phrases`.
void expect_error(const std::function<void()>& fn, std::initializer_list<const char*> phrases);

// A region, a backward and a clean end: that this thread still works.
void expect_next_region_works();

// Bytes of the whole storage that `t` lies in.
int64_t storage_bytes(const at::Tensor& t);

}  // namespace ac2::test

// Writes to a part of a storage whose other parts are saved.
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>

#include "tests/support/regions.h"

namespace ac2::test {
namespace {

using PartWritesTest = CleanTest;

constexpr const char* kModified = "has been modified by an inplace operation";

// Bytes copied in forward if `fn`, which gets (input + 0), runs under the policy, which saves; gradients are those of
// plain autograd.
int64_t copied_by(const std::function<at::Tensor(const at::Tensor&)>& fn, const at::Tensor& input,
                  const Policy& policy = "must_save_all") {
  const Stats stats = expect_same_gradients([&](const Tensors& in) { return Tensors{fn(in[0] + 0)}; }, {input}, policy);
  EXPECT_EQ(stats.forward.saved_bytes, storage_bytes(input) + stats.forward.copied_bytes);
  return stats.forward.copied_bytes;
}

at::Tensor sigmoid_and_tanh(at::Tensor a, at::Tensor b) {
  a.sigmoid_();
  b.tanh_();
  return a.sum() + b.sum();
}

TEST_F(PartWritesTest, ChunksAreWrittenOneByOneWithoutACopy) {
  for (const int64_t dim : {0, 1, 2}) {
    EXPECT_EQ(copied_by(
                  [&](const at::Tensor& t) {
                    const auto parts = at::unsafe_chunk(t, 2, dim);
                    return sigmoid_and_tanh(parts[0], parts[1]);
                  },
                  sample({4, 6, 8})),
              0)
        << dim;
  }
}

TEST_F(PartWritesTest, NothingIsCopiedWhereOffloadingLeavesItInPlace) {
  for (const CheckpointPolicy decision : {CheckpointPolicy::MUST_CPU_OFFLOAD, CheckpointPolicy::PREFER_CPU_OFFLOAD}) {
    const auto halves = [](const at::Tensor& t) {
      const auto parts = at::unsafe_chunk(t, 2, 1);
      return sigmoid_and_tanh(parts[0], parts[1]);
    };
    EXPECT_EQ(copied_by(halves, sample({4, 6}), Policy(decision)), 0);
  }
}

TEST_F(PartWritesTest, ASliceWithAStepIsWrittenBesideAnotherWithoutACopy) {
  const at::Tensor x = sample({4});
  at::Tensor y, expected;
  {
    const PolicyScope scope("must_save_all");
    const at::Tensor t = constant({8}).clone();
    const at::Tensor even = t.slice(0, 0, std::nullopt, 2);
    expected = even.clone();
    y = x * even;
    t.slice(0, 1, std::nullopt, 2).zero_();
    EXPECT_EQ(scope.trace()->stats().copied_bytes, 0);
  }
  EXPECT_TRUE(same_bits(gradient_of(y, x), gradient_of(x * expected, x)));
}

TEST_F(PartWritesTest, TheGatesOfAnLstmCellAreSavedAsPlainAutogradSavesThem) {
  const Tensors inputs = {sample({3, 4}),  sample({3, 4}), sample({3, 4}), sample({16, 4}),
                          sample({16, 4}), sample({16}),   sample({16})};
  const Stats stats = expect_same_gradients(
      [](const Tensors& in) {
        const auto [h, c] = at::lstm_cell(in[0], {in[1], in[2]}, in[3], in[4], in[5], in[6]);
        return Tensors{h, c};
      },
      inputs, "must_save_all");
  EXPECT_EQ(stats.forward.copied_bytes, 0);
}

TEST_F(PartWritesTest, TheWholeIsCopiedOnceIfASavedPartIsWrittenAgain) {
  const at::Tensor x = sample({4, 8});
  at::Tensor first, second;
  std::shared_ptr<const Trace> trace;
  {
    const PolicyScope scope("must_save_all");
    trace = scope.trace();
    const auto parts = at::unsafe_chunk(x + 0, 2, 1);
    const at::Tensor left = parts[0], right = parts[1];
    left.sigmoid_();
    right.tanh_();
    EXPECT_EQ(trace->stats().copied_bytes, 0);
    first = right.sum();
    const at::NoGradGuard no_grad;
    left.zero_();
    EXPECT_EQ(trace->stats().copied_bytes, storage_bytes(x));
    left.zero_();
    right.zero_();
    EXPECT_EQ(trace->stats().copied_bytes, storage_bytes(x));
  }
  at::Tensor plain = at::unsafe_chunk(x + 0, 2, 1)[1];
  EXPECT_TRUE(same_bits(gradient_of(first, x), gradient_of(plain.tanh_().sum(), x)));
}

TEST_F(PartWritesTest, WhatOverlapsIsCopied) {
  const at::Tensor x = sample({8});
  at::Tensor y;
  {
    const PolicyScope scope("must_save_all");
    const at::Tensor t = x + 0;
    y = t.slice(0, 0, 5).sin();
    const at::NoGradGuard no_grad;
    t.detach().slice(0, 4, 8).zero_();
    EXPECT_EQ(scope.trace()->stats().copied_bytes, storage_bytes(x));
  }
  EXPECT_TRUE(same_bits(gradient_of(y, x), gradient_of((x + 0).slice(0, 0, 5).sin(), x)));
}

TEST_F(PartWritesTest, WhatARecomputedOpNeedsIsCopied) {
  const at::Tensor x = sample({8});
  at::Tensor y;
  {
    const PolicyScope scope(saving({"aten::add"}));
    const at::Tensor t = x + 0;
    y = t.slice(0, 0, 4).sin().cos();
    const at::NoGradGuard no_grad;
    t.detach().slice(0, 4, 8).zero_();
    EXPECT_EQ(scope.trace()->stats().copied_bytes, storage_bytes(x));
  }
  EXPECT_TRUE(same_bits(gradient_of(y, x), gradient_of((x + 0).slice(0, 0, 4).sin().cos(), x)));
}

TEST_F(PartWritesTest, WhatIsSavedInAnotherFormKeepsThePartsThatAreNot) {
  const at::Tensor x = sample({4, 8});
  const Policy halves([](const OpContext& op) -> PolicyDecision {
    if (!op.is("aten::tanh_")) return CheckpointPolicy::MUST_SAVE;
    return SaveWithHooks{[](const at::Tensor& t) { return c10::IValue(t.to(at::kHalf)); },
                         [](const c10::IValue& v) { return v.toTensor().to(at::kFloat); }};
  });
  at::Tensor left, right;
  {
    const PolicyScope scope(halves);
    const auto parts = at::unsafe_chunk(x + 0, 2, 1);
    left = parts[0];
    right = parts[1];
    left.sigmoid_();
    right.tanh_();
  }
  at::Tensor plain = at::unsafe_chunk(x + 0, 2, 1)[0];
  EXPECT_TRUE(same_bits(gradient_of(left, x), gradient_of(plain.sigmoid_(), x)));
}

// Not four, one for each version that autograd saw.
TEST_F(PartWritesTest, AReplayOfPartsTakesOneStorage) {
  const at::Tensor x = sample({4, 8});
  at::Tensor y;
  std::shared_ptr<const Trace> trace;
  int64_t most = 0;
  {
    const PolicyScope scope("recompute_all");
    trace = scope.trace();
    const auto parts = at::unsafe_chunk(x.sin(), 4, 1);
    for (at::Tensor part : parts) {
      part.sigmoid_();
      part.register_hook([&](const at::Tensor&) { most = std::max(most, trace->stats().recomputed_bytes); });
      y = y.defined() ? y + part : part + 0;
    }
  }
  EXPECT_EQ(trace->stats().copied_bytes, 0);
  const at::Tensor gradient = gradient_of(y, x);
  at::Tensor expected;
  for (at::Tensor part : at::unsafe_chunk(x.sin(), 4, 1)) {
    part.sigmoid_();
    expected = expected.defined() ? expected + part : part + 0;
  }
  EXPECT_TRUE(same_bits(gradient, gradient_of(expected, x)));
  EXPECT_EQ(trace->stats().recomputed_ops, 5);  // sin and four sigmoids
  EXPECT_EQ(most, storage_bytes(x));
}

// A view of its own counter, for else plain autograd would take the next row's write for one to this one.
TEST_F(PartWritesTest, RowsOfACacheAreReplayedIntoOneStorage) {
  expect_same_gradients_and_replays(
      [](const Tensors& in) {
        const at::Tensor cache = at::zeros({4, 8});
        at::Tensor sum = in[0].sum();
        for (int64_t row = 0; row < 4; ++row) {
          {
            const at::NoGradGuard no_grad;
            cache[row].copy_(in[0].sin());
          }
          sum = sum + (cache.slice(0, 0, row + 1).variable_data() * in[0]).sum();
        }
        return Tensors{sum};
      },
      // Three times sin and copy_. What the first row was written into could not be had again, so that write is held.
      {sample({8})}, 6);
}

// After a write beside it, a saved part is watched as it was before.
TEST_F(PartWritesTest, ASavedPartThatChangesAfterTheRegionIsAnError) {
  for (const bool views_count_together : {true, false}) {
    const at::Tensor x = sample({8});
    at::Tensor t, left, y;
    {
      const PolicyScope scope("must_save_all");
      t = (x + 0).detach();
      left = views_count_together ? t.slice(0, 0, 4) : at::unsafe_chunk(t, 2)[0];
      y = x.slice(0, 0, 4) * left;
      t.slice(0, 4, 8).zero_();
      EXPECT_EQ(scope.trace()->stats().copied_bytes, 0);
    }
    EXPECT_TRUE(same_bits(gradient_of(y, x, /*retain_graph=*/true), gradient_of(x.slice(0, 0, 4) * left, x)));
    left.zero_();
    expect_error([&] { gradient_of(y, x); }, {kModified});
  }
}

TEST_F(PartWritesTest, APartMayBeWrittenWhileAnotherIsUsedByBackward) {
  const at::Tensor x = sample({8});
  at::Tensor y, expected;
  {
    const PolicyScope scope("must_save_all");
    const at::Tensor t = (x + 0).detach();
    y = x.slice(0, 0, 4) * t.slice(0, 0, 4);
    const at::Tensor first = gradient_of(y, x, /*retain_graph=*/true);
    t.slice(0, 4, 8).zero_();
    expected = first;
  }
  EXPECT_TRUE(same_bits(gradient_of(y, x), expected));
}

TEST_F(PartWritesTest, ADroppedGraphLeavesNothing) {
  const at::Tensor x = sample({4, 8});
  const PolicyScope scope("must_save_all");
  {
    const auto parts = at::unsafe_chunk(x + 0, 2, 1);
    parts[0].sigmoid_();
    parts[1].tanh_();
    EXPECT_EQ(scope.trace()->stats().saved_bytes, storage_bytes(x));
  }
  EXPECT_EQ(scope.trace()->stats().saved_bytes, 0);
}

}  // namespace
}  // namespace ac2::test

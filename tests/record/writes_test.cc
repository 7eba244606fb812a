// In-place writes: replayed on the values they were made on, and copied first where they would
// destroy something that is still needed.
#include <torch/csrc/autograd/autograd.h>

#include "tests/support/regions.h"

namespace ac2::test {
namespace {

using WritesTest = CleanTest;

constexpr int64_t kBytes = 16 * 4;  // of a 4 × 4 tensor

// fn(x) for a 4 × 4 x. `replays` are counted, nothing is copied, and x alone is held.
void expect_replays(int64_t replays, at::Tensor (*fn)(const at::Tensor&)) {
  Stats stats = expect_same_gradients([fn](const Tensors& in) { return Tensors{fn(in[0])}; }, {sample({4, 4})});
  EXPECT_EQ(stats.backward.recomputed_ops, replays);
  EXPECT_EQ(stats.forward.copied_bytes, 0);
  EXPECT_EQ(stats.forward.saved_bytes, kBytes);
}

TEST_F(WritesTest, AChainOfWritesIsReplayedInOrder) {
  expect_replays(4, [](const at::Tensor& x) {
    at::Tensor a = x.sin();
    a.mul_(2).add_(1).neg_();
    return a.cos();
  });
}

TEST_F(WritesTest, AWriteToTheBaseIsSeenThroughAView) {
  expect_replays(2, [](const at::Tensor& x) {
    at::Tensor a = x.sin();
    at::Tensor row = a.select(0, 1);
    a.mul_(2);
    return row.cos();
  });
}

TEST_F(WritesTest, AWriteThroughAViewIsSeenInTheBase) {
  expect_replays(2, [](const at::Tensor& x) {
    at::Tensor a = x.sin();
    a.select(0, 1).mul_(2);
    return a.cos();
  });
}

TEST_F(WritesTest, AWriteThroughAViewOfAViewIsSeenInAnother) {
  expect_replays(3, [](const at::Tensor& x) {
    at::Tensor a = x.sin();
    at::Tensor column = a.select(1, 2);
    a.t().slice(0, 1, 4).select(0, 1).add_(1);  // the same column
    a.detach().mul_(2);                         // and the whole
    return column.cos();
  });
}

TEST_F(WritesTest, OneRowAddedToAnother) {
  expect_replays(2, [](const at::Tensor& x) {
    at::Tensor a = x.sin();
    a[0].add_(a[1]);
    return a.cos();
  });
}

TEST_F(WritesTest, ARowAddedToEveryRow) {
  expect_replays(2, [](const at::Tensor& x) {
    at::Tensor a = x.sin();
    a.slice(0, 1, 4).add_(a[0]);
    return a.cos();
  });
}

TEST_F(WritesTest, EachUserOfATensorSeesItsOwnVersion) {
  // sin needs the first version through the product of it, cos the second, tan(…) the third.
  expect_same_gradients_and_replays(
      [](const Tensors& in) {
        at::Tensor a = in[0].sin();
        at::Tensor b = (a * 2).sin();
        a.add_(1);
        at::Tensor c = (a * 3).cos();
        a.mul_(2);
        return Tensors{b, c, (a + 1).cos()};
      },
      // sin, ×2, add_, ×3, mul_, +1
      {sample({4, 4})}, 6);
}

TEST_F(WritesTest, AWriteWhoseBackwardNeedsItsResult) {
  expect_replays(2, [](const at::Tensor& x) {
    at::Tensor a = x.sin();
    a.sigmoid_();
    return a.sum();
  });
}

TEST_F(WritesTest, AWriteWhoseBackwardNeedsWhatItOverwrote) {
  // Autograd itself clones a before sin_: sin and the clone.
  expect_replays(2, [](const at::Tensor& x) {
    at::Tensor a = x.sin();
    a.sin_();
    return a.sum();
  });
}

TEST_F(WritesTest, ReluInPlaceAfterARecomputedOp) {
  expect_same_gradients_and_replays(
      [](const Tensors& in) {
        at::Tensor a = at::conv2d(in[0], in[1], in[2]);
        return Tensors{a.relu_().sum()};
      },
      {sample({1, 2, 5, 5}), sample({3, 2, 3, 3}), sample({3})}, 2);
}

TEST_F(WritesTest, ReluInPlaceAfterASavedOpIsHeldAndNotCopied) {
  Stats stats = expect_same_gradients(
      [](const Tensors& in) {
        at::Tensor a = at::conv2d(in[0], in[1], in[2]);
        return Tensors{a.relu_().sum()};
      },
      {sample({1, 2, 5, 5}), sample({3, 2, 3, 3}), sample({3})}, saving({"aten::convolution"}));
  EXPECT_EQ(stats.backward.recomputed_ops, 0);
  EXPECT_EQ(stats.forward.copied_bytes, 0);
  // conv's input and weight, and relu's result, which lies where conv's did.
  EXPECT_EQ(stats.forward.saved_bytes, 4 * (2 * 5 * 5 + 3 * 2 * 3 * 3 + 3 * 3 * 3));
}

TEST_F(WritesTest, ASavedValueThatIsStillNeededIsCopiedFirst) {
  Stats stats = expect_same_gradients(
      [](const Tensors& in) {
        at::Tensor a = in[0].sin();    // saved by the policy
        at::Tensor b = (a + 1).cos();  // recomputing a + 1 needs a
        a.mul_(2);                     // destroys it
        return Tensors{b, a.sum()};
      },
      {sample({4, 4})}, saving({"aten::sin"}));
  EXPECT_EQ(stats.forward.copied_bytes, kBytes);
  EXPECT_EQ(stats.forward.saved_bytes, 2 * kBytes);  // the input, and the copy
  EXPECT_EQ(stats.backward.recomputed_ops, 1);       // a + 1
}

TEST_F(WritesTest, ASavedValueIsCopiedOnceHoweverOftenItIsOverwritten) {
  Stats stats = expect_same_gradients(
      [](const Tensors& in) {
        at::Tensor a = in[0].sin();
        at::Tensor b = (a + 1).cos();
        a.mul_(2).add_(3).mul_(4);
        return Tensors{b, a.sum()};
      },
      {sample({4, 4})}, saving({"aten::sin"}));
  EXPECT_EQ(stats.forward.copied_bytes, kBytes);
}

TEST_F(WritesTest, ASavedValueThatNothingNeedsIsNotCopied) {
  Stats stats = expect_same_gradients(
      [](const Tensors& in) {
        at::Tensor a = in[0].sin();
        a.mul_(2);
        return Tensors{a.cos().sum()};
      },
      {sample({4, 4})}, saving({"aten::sin"}));
  EXPECT_EQ(stats.forward.copied_bytes, 0);
  EXPECT_EQ(stats.backward.recomputed_ops, 0);       // the product is held as it lies
  EXPECT_EQ(stats.forward.saved_bytes, 2 * kBytes);  // the input and the product
}

TEST_F(WritesTest, AnInputThatIsStillNeededIsCopiedFirst) {
  Stats stats = expect_same_gradients(
      [](const Tensors& in) {
        at::Tensor shifted = (in[0] + in[1]).cos();  // recomputing the sum needs in[1]
        in[1].add_(in[0].detach(), 0.5);             // a running statistic, say
        return Tensors{shifted, in[0] * in[1]};
      },
      {sample({4, 4}), constant({4, 4})});
  EXPECT_EQ(stats.forward.copied_bytes, kBytes);
  // in[0], and in[1] as it was; as it is now, it is recomputed from these, or used while alive.
  EXPECT_EQ(stats.forward.saved_bytes, 2 * kBytes);
  EXPECT_EQ(stats.backward.recomputed_ops, 1);  // the sum
}

TEST_F(WritesTest, AnInputThatNothingNeedsIsWrittenWithoutACopy) {
  Stats stats = expect_same_gradients(
      [](const Tensors& in) {
        in[1].add_(in[0].detach());
        return Tensors{in[0] * in[1]};
      },
      {sample({4, 4}), constant({4, 4})});
  EXPECT_EQ(stats.forward.copied_bytes, 0);
  EXPECT_EQ(stats.forward.saved_bytes, kBytes);  // in[1], for the product
  EXPECT_EQ(stats.backward.recomputed_ops, 0);
}

TEST_F(WritesTest, AViewsWriteCopiesTheWholeStorage) {
  Stats stats = expect_same_gradients(
      [](const Tensors& in) {
        at::Tensor b = (in[0] + in[1][2]).cos();
        in[1][0].zero_();
        return Tensors{b};
      },
      {sample({4}), constant({4, 4})});
  EXPECT_EQ(stats.forward.copied_bytes, kBytes);
}

TEST_F(WritesTest, AnOutArgumentThatIsMadeSmallerKeepsTheBytesBehindIt) {
  const auto forward = [](const Tensors& in) {
    at::Tensor out = at::empty({4, 4});
    at::mul_out(out, in[1], in[1]);
    const at::Tensor all = out.view({16});
    at::sum_out(out, in[1], {0}, true);  // of 4 numbers now, in the storage of 16
    return Tensors{in[0] * out * all.sin().view({4, 4})};
  };
  Stats stats = expect_same_gradients(forward, {sample({4, 4}), constant({4, 4})});
  EXPECT_EQ(stats.forward.copied_bytes, 0);
  PolicyScope scope("recompute_all", {.verify = true});
  const Tensors in = {sample({4, 4}), constant({4, 4})};
  const at::Tensor y = forward(in)[0];
  EXPECT_NO_THROW(gradient_of(y, in[0]));
}

TEST_F(WritesTest, AReplayWithTwoReadersOfTheOldValueGivesThemDifferentCopies) {
  expect_same_gradients_and_replays(
      [](const Tensors& in) {
        at::Tensor a = in[0].sin();
        at::Tensor b = a.mul(in[1]);  // needs the first version …
        at::Tensor before = a.clone();
        a.exp_();  // … and exp_ its own result
        return Tensors{(b + before).cos(), a.sum()};
      },
      // `b` needs a for the gradient of in[1], which autograd refuses to give after exp_; so in[1]
      // requires none. Replayed: sin, mul, clone, add, exp_.
      {sample({4, 4}), constant({4, 4})}, 5);
}

}  // namespace
}  // namespace ac2::test

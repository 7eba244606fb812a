// Views cost nothing: a trace is about storages.
#include <torch/csrc/autograd/autograd.h>

#include <ostream>

#include "tests/support/regions.h"

namespace ac2::test {
namespace {

using ViewsTest = CleanTest;

constexpr int64_t kBytes = 16 * 4;  // of a 4 × 4 tensor

struct View {
  const char* name;
  at::Tensor (*of)(const at::Tensor&);
};

void PrintTo(const View& view, std::ostream* out) {
  *out << view.name;
}

class EveryViewTest : public CleanTest, public ::testing::WithParamInterface<View> {};

TEST_P(EveryViewTest, IsNoNodeAndHoldsItsStorageOnce) {
  auto view = GetParam().of;
  auto fn = [view](const Tensors& in) {
    at::Tensor a = in[0].sin();
    return Tensors{view(a).cos(), view(a).sin()};  // both need a's storage
  };
  Stats recomputed = expect_same_gradients(fn, {sample({4, 4})});
  EXPECT_EQ(recomputed.backward.recomputed_ops, 1);
  EXPECT_EQ(recomputed.forward.live_nodes, 1);
  EXPECT_EQ(recomputed.forward.saved_bytes, kBytes);  // the input

  Stats saved = expect_same_gradients(fn, {sample({4, 4})}, "must_save_all");
  EXPECT_EQ(saved.backward.recomputed_ops, 0);
  EXPECT_EQ(saved.forward.saved_bytes, 2 * kBytes);  // the input and a, once
}

TEST_P(EveryViewTest, OfAnInputHoldsTheInput) {
  auto view = GetParam().of;
  Stats stats = expect_same_gradients(
      [view](const Tensors& in) {
        return Tensors{view(in[0]).cos(), in[0].sin()};
      },
      {sample({4, 4})});
  EXPECT_EQ(stats.forward.saved_bytes, kBytes);
  EXPECT_EQ(stats.backward.recomputed_ops, 0);
}

INSTANTIATE_TEST_SUITE_P(
    Of, EveryViewTest,
    ::testing::Values(
        View{"view",
             [](const at::Tensor& t) {
               return t.view({2, 8});
             }},
        View{"reshape", [](const at::Tensor& t) { return t.reshape({16}); }},
        View{"t", [](const at::Tensor& t) { return t.t(); }},
        View{"transpose", [](const at::Tensor& t) { return t.transpose(0, 1); }},
        View{"permute",
             [](const at::Tensor& t) {
               return t.permute({1, 0});
             }},
        View{"select", [](const at::Tensor& t) { return t.select(0, 2); }},
        View{"slice", [](const at::Tensor& t) { return t.slice(1, 0, 4, 2); }},
        View{"narrow", [](const at::Tensor& t) { return t.narrow(0, 1, 2); }},
        View{"expand",
             [](const at::Tensor& t) {
               return t.unsqueeze(0).expand({3, 4, 4});
             }},
        View{"squeeze", [](const at::Tensor& t) { return t.unsqueeze(0).squeeze(); }},
        View{"diagonal", [](const at::Tensor& t) { return t.diagonal(1); }},
        View{"unfold", [](const at::Tensor& t) { return t.unfold(0, 2, 1); }},
        View{
            "as_strided",
            [](const at::Tensor& t) {
              return t.as_strided({3, 3}, {2, 3}, 1);
            }},
        View{"split", [](const at::Tensor& t) { return t.split(3)[1]; }},
        View{"unbind", [](const at::Tensor& t) { return t.unbind(1)[3]; }},
        View{"view_as", [](const at::Tensor& t) { return t.view_as(t); }},
        View{"contiguous", [](const at::Tensor& t) { return t.contiguous(); }},
        View{"alias", [](const at::Tensor& t) { return at::alias(t); }},
        View{"a_view_of_views", [](const at::Tensor& t) { return t.view({2, 8}).t().slice(0, 1, 7).select(1, 1); }}),
    [](const auto& info) { return info.param.name; });

TEST_F(ViewsTest, DetachAndDataAreTheSameStorage) {
  at::Tensor x = sample({4, 4});
  at::Tensor y;
  std::shared_ptr<const Trace> trace;
  {
    PolicyScope scope("recompute_all");
    trace = scope.trace();
    at::Tensor a = x.sin();
    y = (x * a.detach()).sin() + x * a.data();
  }
  // x, for sin and both products.
  EXPECT_EQ(trace->stats().saved_bytes, kBytes);
  at::Tensor a = x.sin();
  at::Tensor expected = gradient_of((x * a.detach()).sin() + x * a.data(), x);
  EXPECT_TRUE(same_bits(gradient_of(y, x), expected));
  EXPECT_EQ(trace->stats().recomputed_ops, 2);  // a, and the first product
}

TEST_F(ViewsTest, APieceOfALargeStorageCountsWhole) {
  at::Tensor x = constant({4, 4});
  at::Tensor w = sample({4});
  at::Tensor y;
  std::shared_ptr<const Trace> trace;
  {
    PolicyScope scope("recompute_all");
    trace = scope.trace();
    y = w * x.select(0, 1);  // needs one row of x
  }
  EXPECT_EQ(trace->stats().saved_bytes, kBytes);
}

TEST_F(ViewsTest, AnOutputThatIsAViewIsAlive) {
  Stats stats = expect_same_gradients(
      [](const Tensors& in) {
        at::Tensor a = in[0].sin();
        return Tensors{a.cos(), a.select(0, 1)};  // a's storage is alive through its row
      },
      {sample({4, 4})});
  EXPECT_EQ(stats.backward.recomputed_ops, 0);
}

TEST_F(ViewsTest, ReinterpretedElements) {
  // A view of another dtype of the same bytes, and back.
  expect_same_gradients_and_replays(
      [](const Tensors& in) {
        at::Tensor bits = in[1].view(at::kInt);
        at::Tensor doubled = bits.add(1 << 23);  // the exponent
        return Tensors{(in[0] * doubled.view(at::kFloat)).sin()};
      },
      {sample({4}), at::ones({4})}, 2);
}

TEST_F(ViewsTest, ViewsOfARegionsResultInTheNextRegion) {
  at::Tensor x = sample({4, 4});
  at::Tensor y;
  std::shared_ptr<const Trace> trace;
  {
    PolicyScope scope("recompute_all");
    y = x.sin();
  }
  {
    PolicyScope scope("recompute_all");
    trace = scope.trace();
    y = y.t().select(0, 1).sin().cos();
  }
  EXPECT_EQ(trace->stats().saved_bytes, kBytes);
  at::Tensor expected = gradient_of(x.sin().t().select(0, 1).sin().cos(), x);
  EXPECT_TRUE(same_bits(gradient_of(y, x), expected));
  EXPECT_EQ(trace->stats().recomputed_ops, 1);
}

TEST_F(ViewsTest, OpsThatCopyOnlySometimes) {
  expect_same_gradients_and_replays(
      [](const Tensors& in) {
        at::Tensor a = in[0].sin();
        at::Tensor same = a.reshape({2, 8});      // a view
        at::Tensor copy = a.t().reshape({2, 8});  // a copy
        return Tensors{same.cos(), copy.cos(), a.to(at::kFloat).tan().sum()};
      },
      // a and its copy; tan's result.
      {sample({4, 4})}, 3);
}

TEST_F(ViewsTest, ComplexPartsAreViews) {
  expect_same_gradients_and_replays(
      [](const Tensors& in) {
        at::Tensor a = in[0].sin();
        return Tensors{at::real(a).cos(), at::imag(a).sin(), at::view_as_real(a).cos()};
      },
      {sample({4}, at::kComplexFloat)}, 1);
}

}  // namespace
}  // namespace ac2::test

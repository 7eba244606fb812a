// The ops that write: out= arguments, fills, scatters, and those that change a tensor's storage.
#include <torch/csrc/autograd/autograd.h>

#include <optional>
#include <ostream>

#include "tests/support/regions.h"

namespace ac2::test {
namespace {

using WriteOpsTest = CleanTest;

struct Write {
  const char* name;
  int64_t replays;
  // Writes into `a`, which is sin(x); then cos needs a.
  void (*write)(at::Tensor& a, const Tensors& in);
};

void PrintTo(const Write& write, std::ostream* out) {
  *out << write.name;
}

class EveryWriteTest : public CleanTest, public ::testing::WithParamInterface<Write> {};

TEST_P(EveryWriteTest, IsReplayedOnWhatItWasMadeOn) {
  const Write& write = GetParam();
  Stats stats = expect_same_gradients(
      [&write](const Tensors& in) {
        at::Tensor a = in[0].sin();
        write.write(a, in);
        return Tensors{a.cos()};
      },
      {sample({4, 4}), sample({4, 4}), at::tensor({int64_t{3}, int64_t{0}})});
  EXPECT_EQ(stats.backward.recomputed_ops, write.replays);
  EXPECT_EQ(stats.forward.copied_bytes, 0);
}

c10::List<std::optional<at::Tensor>> rows(const at::Tensor& indices) {
  return c10::List<std::optional<at::Tensor>>({std::optional<at::Tensor>(indices)});
}

// Where a is written in part, sin, the write, and what was made for it are replayed.
INSTANTIATE_TEST_SUITE_P(
    With, EveryWriteTest,
    ::testing::Values(
        Write{"add_", 2, [](at::Tensor& a, const Tensors& in) { a.add_(in[1], 0.5); }},
        Write{"mul_by_a_constant", 2, [](at::Tensor& a, const Tensors& in) { a.mul_(in[1].detach()); }},
        Write{"addcmul_", 2, [](at::Tensor& a, const Tensors& in) { a.addcmul_(in[1].detach(), in[1].detach()); }},
        Write{"addmm_", 2, [](at::Tensor& a, const Tensors& in) { a.addmm_(in[1], in[1].t(), 0.5, 2); }},
        Write{"masked_fill_", 3,  // sin, gt (needed as the mask in any case), masked_fill_
              [](at::Tensor& a, const Tensors& in) { a.masked_fill_(in[1] > 0, 0.25); }},
        Write{"index_put_", 2,
              [](at::Tensor& a, const Tensors& in) { a.index_put_(rows(in[2]), in[1].slice(0, 0, 2)); }},
        Write{"index_put_accumulating", 2,
              [](at::Tensor& a, const Tensors& in) {
                a.index_put_(rows(in[2]), in[1].slice(0, 0, 2), /*accumulate=*/true);
              }},
        Write{"index_add_", 2, [](at::Tensor& a, const Tensors& in) { a.index_add_(1, in[2], in[1].slice(1, 0, 2)); }},
        Write{"index_fill_", 2, [](at::Tensor& a, const Tensors& in) { a.index_fill_(0, in[2], 2); }},
        Write{"scatter_", 2,
              [](at::Tensor& a, const Tensors& in) {
                a.scatter_(0, in[2].view({1, 2}), in[1].slice(0, 0, 1).slice(1, 0, 2));
              }},
        Write{"copy_into_rows", 2,
              [](at::Tensor& a, const Tensors& in) { a.slice(0, 0, 2).copy_(in[1].slice(0, 2, 4)); }},
        Write{"copy_into_columns", 3,  // sin, cos, copy_
              [](at::Tensor& a, const Tensors& in) { a.slice(1, 0, 4, 2).copy_(in[1].cos().slice(1, 2, 4)); }},
        Write{"fill_a_row", 2, [](at::Tensor& a, const Tensors&) { a[2].fill_(0.5); }},
        Write{"zero_the_diagonal", 2, [](at::Tensor& a, const Tensors&) { a.diagonal().zero_(); }},
        Write{"triu_", 2, [](at::Tensor& a, const Tensors&) { a.triu_(); }},
        // Transposes the view, writes nothing.
        Write{"t_", 1, [](at::Tensor& a, const Tensors&) { a.t_(); }},
        Write{"unsqueeze_", 1, [](at::Tensor& a, const Tensors&) { a.unsqueeze_(0); }},
        Write{"clamp_", 3,  // sin, autograd's clone of it, clamp_
              [](at::Tensor& a, const Tensors&) { a.clamp_(-0.5, 0.5); }}),
    [](const auto& info) { return info.param.name; });

// The bytes before the write make no difference: sin is not replayed.
INSTANTIATE_TEST_SUITE_P(Overwriting, EveryWriteTest,
                         ::testing::Values(Write{"copy_", 1, [](at::Tensor& a, const Tensors& in) { a.copy_(in[1]); }},
                                           Write{"copy_from_another_type", 2,  // _to_copy, copy_
                                                 [](at::Tensor& a, const Tensors& in) {
                                                   a.copy_(in[1].to(at::kDouble));
                                                 }}),
                         [](const auto& info) { return info.param.name; });

TEST_F(WriteOpsTest, AnOutArgumentIsReplayed) {
  expect_same_gradients_and_replays(
      [](const Tensors& in) {
        at::Tensor out = at::empty({4, 4});
        at::sin_out(out, in[1]);
        at::Tensor view = out.t();
        return Tensors{in[0] * view};
      },
      {sample({4, 4}), constant({4, 4})}, 1);
}

TEST_F(WriteOpsTest, AnOutArgumentThatIsResized) {
  expect_same_gradients(
      [](const Tensors& in) {
        at::Tensor out = at::empty({0});
        at::mm_out(out, in[1], in[1]);
        return Tensors{(in[0] * out).sin()};
      },
      {sample({4, 4}), constant({4, 4})});
}

TEST_F(WriteOpsTest, AnOutArgumentThatIsAPartOfATensor) {
  expect_same_gradients(
      [](const Tensors& in) {
        at::Tensor all = in[1].cos();
        at::Tensor row = all[1];
        at::sin_out(row, in[1][2]);
        at::add_out(row, row, in[1][3]);
        return Tensors{(in[0] * all).sin()};
      },
      {sample({4, 4}), constant({4, 4})});
}

TEST_F(WriteOpsTest, SeveralOutArguments) {
  expect_same_gradients(
      [](const Tensors& in) {
        at::Tensor values = at::empty({0}), indices = at::empty({0}, at::kLong);
        at::sort_out(values, indices, in[1], 0);
        return Tensors{in[0] * values, in[0].gather(0, indices).sin()};
      },
      {sample({4, 4}), constant({4, 4})});
}

// A boxed call of an op that returns several of its arguments drops its handles on them before it returns them.
TEST_F(WriteOpsTest, SeveralOutArgumentsThatNobodyElseHolds) {
  for (int i = 0; i < 20; ++i) {
    expect_same_gradients_and_replays(
        [](const Tensors& in) {
          at::Tensor values = at::empty({4}), places = at::empty({4}, at::kLong);
          at::max_out(values, places, in[1], 1);
          return Tensors{in[0] * values};
        },
        {sample({4, 4}), constant({4, 4})}, 1);
  }
}

TEST_F(WriteOpsTest, ABufferFilledRowByRow) {
  expect_same_gradients(
      [](const Tensors& in) {
        at::Tensor all = at::zeros({4, 4});
        for (int64_t i = 0; i < 4; ++i) all[i] = in[0][i].sin() * (i + 1);
        return Tensors{all.cos()};
      },
      {sample({4, 4})});
}

TEST_F(WriteOpsTest, ATensorFilledThroughItsPointer) {
  Stats stats = expect_same_gradients(
      [](const Tensors& in) {
        at::Tensor weights = at::empty({4});
        for (int i = 0; i < 4; ++i) weights.data_ptr<float>()[i] = 0.5F + i;
        at::Tensor constants = at::tensor({1.0F, 2.0F, 3.0F, 4.0F});  // is filled that way too
        return Tensors{(in[0] * weights).sin(), (in[0] * constants).sin()};
      },
      {sample({4})});
  EXPECT_EQ(stats.backward.recomputed_ops, 2);      // the products
  EXPECT_EQ(stats.forward.saved_bytes, 3 * 4 * 4);  // in[0], weights, constants
}

TEST_F(WriteOpsTest, ConstantsAreHeldAndNotRecomputed) {
  Stats stats = expect_same_gradients(
      [](const Tensors& in) {
        at::Tensor steps = at::arange(4, at::kFloat) + at::ones_like(in[0]);
        return Tensors{(in[0] * steps).sin()};
      },
      {sample({4})});
  // The product and the sum; in[0] and the two constants are held for them.
  EXPECT_EQ(stats.backward.recomputed_ops, 2);
  EXPECT_EQ(stats.forward.saved_bytes, 3 * 4 * 4);
}

TEST_F(WriteOpsTest, SetDataSwapsTheStorage) {
  expect_same_gradients_and_replays(
      [](const Tensors& in) {
        at::Tensor a = in[0].sin();
        at::Tensor other = in[1].cos().detach();
        a.set_data(other);
        return Tensors{a.cos()};  // needs other's storage
      },
      {sample({4, 4}), sample({4, 4})}, 1);
}

TEST_F(WriteOpsTest, SetSwapsTheStorage) {
  expect_same_gradients_and_replays(
      [](const Tensors& in) {
        at::Tensor a = in[1].sin();
        a.set_(in[1].cos());
        return Tensors{in[0] * a};
      },
      {sample({4, 4}), constant({4, 4})}, 1);
}

TEST_F(WriteOpsTest, ResizeKeepsWhatIsThere) {
  expect_same_gradients(
      [](const Tensors& in) {
        at::Tensor small = in[1].sin();
        small.resize_({2, 4});
        at::Tensor grown = at::empty({0});
        grown.resize_({4, 4});
        grown.copy_(in[1].cos());
        return Tensors{in[0].slice(0, 0, 2) * small, (in[0] * grown).sin()};
      },
      {sample({4, 4}), constant({4, 4})});
}

TEST_F(WriteOpsTest, AResizeThatMovesTheBytesLosesNothing) {
  for (Policy policy : {Policy("recompute_all"), saving({"aten::sin"})}) {
    expect_same_gradients(
        [](const Tensors& in) {
          at::Tensor a = in[1].sin();
          at::Tensor before = (in[0] + a).cos();  // recomputing the sum needs a as it is now
          a.resize_({8});
          a.slice(0, 2, 8).fill_(0.5);
          return Tensors{before, (in[0] * a.slice(0, 1, 5)).sin()};
        },
        {sample({4}), constant({4})}, policy);
  }
}

TEST_F(WriteOpsTest, LinearsHiddenAdd) {
  // Four dimensions and not contiguous: linear is a matrix product and an add_ in place.
  Stats stats = expect_same_gradients(
      [](const Tensors& in) { return Tensors{at::linear(in[0].transpose(1, 2), in[1], in[2]).sin()}; },
      {sample({2, 3, 4, 5}), sample({6, 5}), sample({6})});
  EXPECT_EQ(stats.forward.copied_bytes, 0);
}

TEST_F(WriteOpsTest, SubtractingFromANumber) {
  expect_same_gradients([](const Tensors& in) { return Tensors{(1 - in[0].sin()).cos()}; }, {sample({4})});
}

}  // namespace
}  // namespace ac2::test

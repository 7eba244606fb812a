#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "ac2/in_chunks.h"
#include "tests/support/regions.h"

namespace ac2::test {
namespace {

using Fn = std::function<at::Tensor(const at::Tensor&)>;

class ExactChunksTest : public CleanTest {
 protected:
  void expect_exact(const Fn& fn, int64_t dim = 0) const {
    const at::Tensor expected = fn(x_);
    for (const int64_t chunks : {1, 2, 3, 40}) {
      const at::Tensor y = in_chunks(fn, x_, {.dim = dim, .chunks = chunks, .exact = true});
      EXPECT_TRUE(same_bits(y.contiguous(), expected.contiguous())) << chunks;
      if (y.requires_grad()) {
        const at::Tensor gradient = constant(y.sizes());
        EXPECT_TRUE(same_bits(torch::autograd::grad({y}, {x_}, {gradient})[0].contiguous(),
                              torch::autograd::grad({fn(x_)}, {x_}, {gradient})[0].contiguous()))
            << chunks;
      }
    }
  }
  void expect_refused(const Fn& fn, std::initializer_list<const char*> phrases) const {
    expect_error([&] { in_chunks(fn, x_, {.chunks = 3, .exact = true}); }, phrases);
    in_chunks(fn, x_, {.chunks = 1, .exact = true});  // is one call
  }

  const at::Tensor x_ = sample({7, 5, 6});
  const at::Tensor shared_ = constant({6});
};

TEST_F(ExactChunksTest, WorkByRowsPasses) {
  expect_exact([&](const at::Tensor& x) { return at::tanh(x * shared_ + 1).exp(); });
  expect_exact([](const at::Tensor& x) { return x.softmax(-1).log_softmax(-1); });
  expect_exact([&](const at::Tensor& x) { return at::layer_norm(x, {5, 6}); });
  expect_exact([](const at::Tensor& x) { return x - x.detach().mean(at::IntArrayRef{1, 2}, /*keepdim=*/true); });
  expect_exact([](const at::Tensor& x) { return x.square().mean(at::IntArrayRef{1, 2}); });
  expect_exact([](const at::Tensor& x) { return at::where(x > 0, x, x.mul(2)).amax(1); });
  expect_exact([&](const at::Tensor& x) { return x.detach().clone().mul_(shared_).clamp_(0, 1); });
}

TEST_F(ExactChunksTest, RowsAreFollowedThroughViews) {
  expect_exact([](const at::Tensor& x) { return x.flatten(0, 1).sin().view_as(x); });
  expect_exact([](const at::Tensor& x) { return x.transpose(0, 2).softmax(-1).transpose(0, 2); }, 1);
  expect_exact([](const at::Tensor& x) { return x.permute({2, 0, 1}).exp().sum(0); });
  expect_exact([](const at::Tensor& x) { return at::cat({x.select(1, 2), x.narrow(2, 1, 3).sum(1)}, 1); });
  expect_exact([](const at::Tensor& x) { return x.detach().unsqueeze(0).expand({3, -1, -1, -1}).sin().amax(0); });
  expect_exact([](const at::Tensor& x) { return x.slice(2, 0, 1).squeeze().cos(); });
  expect_exact([](const at::Tensor& x) { return x.unbind(1)[3].exp(); });
}

TEST_F(ExactChunksTest, WhatMayDifferIsRefusedByName) {
  const at::Tensor weight = constant({6, 6});
  expect_refused([&](const at::Tensor& x) { return x.matmul(weight); }, {"aten::mm", "another order"});
  expect_refused([](const at::Tensor& x) { return x.sigmoid(); },
                 {"aten::sigmoid", "is not known to compute each row"});
  expect_refused([](const at::Tensor& x) { return at::dropout(x, 0.5, true); }, {"draws random numbers"});
  expect_refused([](const at::Tensor& x) { return x + at::rand({6}); }, {"aten::rand", "draws random numbers"});
  expect_refused([](const at::Tensor& x) { return x.cumsum(0); }, {"aten::cumsum", "the dimension that is cut"});
  expect_refused([](const at::Tensor& x) { return x - x.mean(); }, {"aten::mean", "the dimension that is cut"});
  expect_refused([](const at::Tensor& x) { return x - x.select(0, 1); }, {"aten::select", "the dimension that is cut"});
  expect_refused([](const at::Tensor& x) { return x.softmax(1); },
                 {"aten::_softmax", "another dimension than the last"});
  expect_refused([](const at::Tensor& x) { return at::add(x, x, 0.3); }, {"aten::add.Tensor", "alpha"});
  expect_refused([](const at::Tensor& x) { return x.pow(1.5); }, {"aten::pow", "exponent"});
  expect_refused(
      [](const at::Tensor& x) {
        return x + at::arange(x.size(0)).view({-1, 1, 1});
      },
      {"aten::add.Tensor", "with numbers of its own for each row"});
  expect_refused([](const at::Tensor& x) { return x.transpose(0, 1).sin(); },
                 {"result 0", "the rows along dimension 0"});
  expect_refused([](const at::Tensor& x) { return at::ones_like(x[0]).unsqueeze(0); }, {"aten::select"});
}

TEST_F(ExactChunksTest, ASumWithinRowsThatDoNotLieOneBehindTheOtherIsRefused) {
  expect_refused([](const at::Tensor& x) { return x.transpose(0, 2).contiguous().sum(0).transpose(0, 1); },
                 {"aten::sum.dim_IntList", "row by row in memory"});
  expect_refused([](const at::Tensor& x) { return x * x.amax(1, /*keepdim=*/true); },
                 {"aten::mul.Tensor", "broadcasts a tensor that has a gradient"});
  expect_refused([](const at::Tensor& x) { return x.amax(1, /*keepdim=*/true).expand_as(x); },
                 {"aten::expand", "broadcasts a tensor that has a gradient"});
}

TEST_F(ExactChunksTest, ASumOverChunksIsRefused) {
  const at::Tensor weight = sample({6}), other = weight * 2;
  for (const at::Tensor& each : {weight, other}) {
    expect_refused([&](const at::Tensor& x) { return x * each; },
                   {"aten::mul.Tensor", "[6]", "requires a gradient and is not cut", "sum over chunks"});
  }
  expect_refused([&](const at::Tensor& x) { return x + x_.sum(); }, {"aten::sum", "requires a gradient"});
  expect_error(
      [&] {
        in_chunks([](const at::Tensor& x) { return x.sum(); }, x_, {.chunks = 2, .reduce = "sum", .exact = true});
      },
      {"reduce is \"sum\"", "Concatenate"});
  expect_error(
      [&] {
        in_chunks([](const at::Tensor& x, const at::Tensor& y) { return x * y; }, {x_, x_},
                  {.chunks = 2, .exact = true});
      },
      {"tensors 0 and 1 are the same"});
}

TEST_F(ExactChunksTest, AWriteToWhatTheFunctionHasNotMadeIsRefused) {
  const at::Tensor count = at::zeros({6});
  expect_refused(
      [&](const at::Tensor& x) {
        count.view({6}).add_(1);
        return x * count;
      },
      {"aten::add_.Scalar", "writes to", "has not made"});
  expect_exact([](const at::Tensor& x) { return x * at::zeros({6}).add_(2); });
}

struct Doubled : torch::autograd::Function<Doubled> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) { return x * 2; }
  static Tensors backward(torch::autograd::AutogradContext*, const Tensors& g) { return {g[0] * 2}; }
};

TEST_F(ExactChunksTest, ABackwardThatIsNotPyTorchsIsRefused) {
  expect_refused([](const at::Tensor& x) { return Doubled::apply(x.sin()).cos(); }, {"backward", "Doubled"});
}

TEST_F(ExactChunksTest, ChunksHaveTwoRowsAtLeast) {
  std::vector<int64_t> rows;
  const Fn fn = [&](const at::Tensor& x) {
    rows.push_back(x.size(0));
    return x.sin();
  };
  in_chunks(fn, x_, {.chunks = 7, .exact = true});
  EXPECT_EQ(rows, (std::vector<int64_t>{3, 2, 2}));
  rows.clear();
  in_chunks(fn, x_, {.bytes = 1, .exact = true});
  EXPECT_EQ(rows, (std::vector<int64_t>{2, 3, 2}));
  rows.clear();
  in_chunks(fn, x_.slice(0, 0, 3), {.bytes = 1, .exact = true});
  EXPECT_EQ(rows, (std::vector<int64_t>{3}));
}

TEST_F(ExactChunksTest, WithinAChunkOtherRowsAreCutJustAsExactly) {
  const auto scaled_by = [&](const Fn& fn) {
    return [&, fn](const at::Tensor& x) { return x * in_chunks(fn, shared_, {.chunks = 3, .exact = true}); };
  };
  expect_exact(scaled_by([](const at::Tensor& rows) { return rows.sin().abs(); }));
  expect_error([&] { scaled_by([](const at::Tensor& rows) { return rows.sigmoid(); })(x_); }, {"aten::sigmoid"});
}

TEST_F(ExactChunksTest, AroundARegionAndWithoutGradientsTheSameIsRefused) {
  const at::NoGradGuard no_grad;
  expect_refused([](const at::Tensor& x) { return x.sigmoid(); }, {"aten::sigmoid"});
  const PolicyScope scope("must_save_all");
  expect_refused([](const at::Tensor& x) { return x.sigmoid(); }, {"aten::sigmoid"});
}

}  // namespace
}  // namespace ac2::test

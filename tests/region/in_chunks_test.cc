#include "ac2/in_chunks.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "ac2/scope.h"
#include "tests/support/allocation_log.h"
#include "tests/support/regions.h"

namespace ac2::test {
namespace {

constexpr int64_t kRows = 12, kColumns = 16, kWords = 256;

class InChunksTest : public CleanTest {
 protected:
  static at::Tensor by_rows(const at::Tensor& x) { return x.exp().sin().softmax(1).tanh(); }
  at::Tensor losses(const at::Tensor& hidden, const at::Tensor& target) const {
    return at::cross_entropy_loss(at::linear(hidden, vocabulary_), target, {}, at::Reduction::Sum, -100, 0.1);
  }

  const at::Tensor hidden_ = sample({kRows, kColumns});
  const at::Tensor vocabulary_ = sample({kWords, kColumns});
  const at::Tensor target_ = at::arange(kRows, at::kLong) * 7;
};

TEST_F(InChunksTest, WorkByRowsHasTheBitsOfOneCallInAnyNumberOfChunks) {
  const Tensors expected = torch::autograd::grad({by_rows(hidden_).sum()}, {hidden_});
  for (const int64_t chunks : {1, 2, 5, 12, 40}) {
    const at::Tensor y = in_chunks(&by_rows, hidden_, {.chunks = chunks});
    EXPECT_TRUE(same_bits(y, by_rows(hidden_))) << chunks;
    expect_same_bits(torch::autograd::grad({y.sum()}, {hidden_}), expected, "gradients");
  }
}

// In the type itself the sums would come to a stand at 256, and at 2048.
TEST_F(InChunksTest, SumsOverChunksOfAHalfPrecisionAreAddedUpInFloat) {
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    const at::Tensor ones = at::ones({4096, 1}, type), weight = at::ones({1}, type).requires_grad_();
    for (const char* around : {"", "must_save_all", "recompute_all"}) {
      std::optional<PolicyScope> scope;
      if (*around != 0) scope.emplace(around);
      const at::Tensor sum = in_chunks([&](const at::Tensor& rows) { return (rows * weight).sum(); }, ones,
                                       {.chunks = 4096, .reduce = "sum"});
      scope.reset();
      EXPECT_EQ(sum.scalar_type(), type);
      EXPECT_EQ(sum.item<double>(), 4096) << around;
      const at::Tensor gradient = torch::autograd::grad({sum}, {weight})[0];
      EXPECT_EQ(gradient.scalar_type(), type);
      EXPECT_EQ(gradient.item<double>(), 4096) << around;
    }
  }
}

TEST_F(InChunksTest, AnyDimensionMayBeCut) {
  const auto columns = [](const at::Tensor& x) { return x.exp().softmax(0); };
  for (const int64_t dim : {1, -1}) {
    const at::Tensor y = in_chunks(columns, hidden_, {.dim = dim, .chunks = 3});
    EXPECT_TRUE(same_bits(y, columns(hidden_))) << dim;
  }
}

TEST_F(InChunksTest, TheFunctionRunsOnceForEachChunkAndItsOpsAreReplayed) {
  std::vector<int64_t> rows;
  const at::Tensor y = in_chunks(
      [&](const at::Tensor& x) {
        rows.push_back(x.size(0));
        return by_rows(x);
      },
      hidden_, {.chunks = 5});
  EXPECT_EQ(rows, (std::vector<int64_t>{3, 3, 2, 2, 2}));
  y.sum().backward();
  EXPECT_EQ(rows.size(), 5);
}

TEST_F(InChunksTest, SumsAndGradientsOfWeightsDifferByTheOrderOfAdditionsAlone) {
  const at::Tensor plain = losses(hidden_, target_);
  const Tensors expected = torch::autograd::grad({plain}, {hidden_, vocabulary_});
  const auto fn = [&](const at::Tensor& hidden, const at::Tensor& target) { return losses(hidden, target); };
  const at::Tensor sum = in_chunks(fn, {hidden_, target_}, {.chunks = 4, .reduce = "sum"});
  EXPECT_TRUE(at::allclose(sum, plain, 1e-5, 0));
  const Tensors gradients = torch::autograd::grad({sum}, {hidden_, vocabulary_});
  for (size_t i = 0; i < 2; ++i) EXPECT_TRUE(at::allclose(gradients[i], expected[i], 1e-4, 1e-6)) << i;
}

TEST_F(InChunksTest, AMeanWithCountsLeavesOutWhatIsIgnored) {
  const at::Tensor target = target_.clone();
  target.slice(0, 0, 5).fill_(-100);
  const at::Tensor plain = at::cross_entropy_loss(at::linear(hidden_, vocabulary_), target, {}, at::Reduction::Mean);
  const auto fn = [&](const Tensors& slices) {
    const at::Tensor logits = at::linear(slices[0], vocabulary_);
    return Tensors{at::cross_entropy_loss(logits, slices[1], {}, at::Reduction::Sum), slices[1].ne(-100).sum()};
  };
  const Tensors mean = in_chunks(fn, {hidden_, target}, {.chunks = 5, .reduce = "mean"});
  ASSERT_EQ(mean.size(), 1);
  EXPECT_TRUE(at::allclose(mean[0], plain, 1e-5, 0));
  const auto by_size = [](const at::Tensor& x) { return x.sin().mean(); };
  EXPECT_TRUE(
      at::allclose(in_chunks(by_size, hidden_, {.chunks = 5, .reduce = "mean"}), hidden_.sin().mean(), 1e-5, 0));
}

TEST_F(InChunksTest, AFunctionMayTakeSeveralTensors) {
  const auto sum = [](const at::Tensor& x, const at::Tensor& y, const at::Tensor& z) { return x + (y + z); };
  EXPECT_TRUE(same_bits(in_chunks(sum, {hidden_, hidden_, hidden_}, {.chunks = 2}), hidden_ + (hidden_ + hidden_)));
}

TEST_F(InChunksTest, SeveralResultsAreConcatenatedEachByItself) {
  const auto fn = [](const at::Tensor& x) { return Tensors{x.sin(), x.cos().sum(1, /*keepdim=*/true)}; };
  const Tensors both = in_chunks(fn, hidden_, {.chunks = 4});
  ASSERT_EQ(both.size(), 2);
  EXPECT_TRUE(same_bits(both[0], hidden_.sin()));
  EXPECT_TRUE(same_bits(both[1], hidden_.cos().sum(1, /*keepdim=*/true)));
}

// What is there at the most on top of what there was before: logits, and what log_softmax and backward make of them.
TEST_F(InChunksTest, TheInsideOfOneChunkIsThereAtATimeInForwardAndInBackward) {
  AllocationLog& log = AllocationLog::install();
  const at::Tensor hidden = sample({128, kColumns}), target = at::zeros({128}, at::kLong);
  const auto fn = [&](const at::Tensor& h, const at::Tensor& t) { return losses(h, t); };
  const auto peak = [&](const std::function<at::Tensor()>& loss) {
    const std::vector<int64_t> bytes = log.during([&] { torch::autograd::grad({loss()}, {hidden, vocabulary_}); });
    return *std::max_element(bytes.begin(), bytes.end());
  };
  const int64_t logits = 128 * kWords * static_cast<int64_t>(sizeof(float));
  const int64_t weights = vocabulary_.numel() * static_cast<int64_t>(sizeof(float));
  EXPECT_GE(peak([&] { return losses(hidden, target); }), 2 * logits);
  const int64_t chunked = peak([&] { return in_chunks(fn, {hidden, target}, {.chunks = 16, .reduce = "sum"}); });
  EXPECT_LE(chunked, 4 * logits / 16 + 3 * weights);
  const int64_t bounded = peak([&] { return in_chunks(fn, {hidden, target}, {.bytes = logits / 4, .reduce = "sum"}); });
  EXPECT_LE(bounded, logits + 3 * weights);
}

TEST_F(InChunksTest, BytesBoundWhatTheOpsOfAChunkMake) {
  std::vector<int64_t> rows;
  const auto fn = [&](const at::Tensor& x) {
    rows.push_back(x.size(0));
    return x.exp().sin();
  };
  const at::Tensor x = sample({130, 4});
  // Two results of 16 bytes a row. The first chunk has a 64th of the rows.
  const at::Tensor y = in_chunks(fn, x, {.bytes = 32 * 50});
  EXPECT_EQ(rows, (std::vector<int64_t>{2, 43, 43, 42}));
  EXPECT_TRUE(same_bits(y, x.exp().sin()));
  rows.clear();
  in_chunks(fn, x.slice(0, 0, 3), {.bytes = 1});  // less than a row takes
  EXPECT_EQ(rows, (std::vector<int64_t>{1, 1, 1}));
}

TEST_F(InChunksTest, InsideARegionTheChunksAreScopesOfTheRegion) {
  at::Tensor y;
  std::shared_ptr<const Trace> trace;
  {
    PolicyScope scope(Policy::constant(CheckpointPolicy::MUST_SAVE));
    trace = scope.trace();
    y = in_chunks(&by_rows, hidden_, {.chunks = 3});
  }
  y.sum().backward();
  EXPECT_EQ(trace->stats().recomputed_ops, 0);
  {
    PolicyScope scope(Policy::constant(CheckpointPolicy::PREFER_SAVE));
    trace = scope.trace();
    y = in_chunks(&by_rows, hidden_, {.chunks = 3});
  }
  const Tensors expected = torch::autograd::grad({by_rows(hidden_).sum()}, {hidden_});
  expect_same_bits(torch::autograd::grad({y.sum()}, {hidden_}), expected, "gradients");
  EXPECT_GT(trace->stats().recomputed_ops, 0);
}

TEST_F(InChunksTest, SecondDerivativesAreThoseOfOneCall) {
  const auto second = [&](const at::Tensor& y) {
    const at::Tensor g = torch::autograd::grad({y.sum()}, {hidden_}, {}, true, /*create_graph=*/true)[0];
    return torch::autograd::grad({g.square().sum()}, {hidden_});
  };
  expect_same_bits(second(in_chunks(&by_rows, hidden_, {.chunks = 4})), second(by_rows(hidden_)), "second derivatives");
}

TEST_F(InChunksTest, WrongUseIsAnErrorThatSaysWhatWasExpected) {
  const auto fn = [](const at::Tensor& x) { return x.sin(); };
  expect_error([&] { in_chunks(fn, hidden_, {}); }, {"either the number of chunks or the bytes", "neither"});
  expect_error([&] { in_chunks(fn, hidden_, {.chunks = 2, .bytes = 2}); }, {"both"});
  expect_error([&] { in_chunks(fn, hidden_, {.chunks = 0}); }, {"chunks must be a positive number, but is 0"});
  expect_error([&] { in_chunks(fn, hidden_, {.dim = 2, .chunks = 2}); }, {"cannot be cut along dimension 2"});
  expect_error([&] { in_chunks(fn, hidden_, {.chunks = 2, .reduce = "max"}); }, {"reduce is \"max\"", "\"mean\""});
  const auto two = [](const at::Tensor& x, const at::Tensor& y) { return x + y; };
  expect_error(
      [&] {
        in_chunks(two, {hidden_, vocabulary_}, {.chunks = 2});
      },
      {"tensor 1 has 256 rows", "tensor 0 has 12"});
  expect_error([&] { in_chunks(fn, {hidden_, hidden_}, {.chunks = 2}); }, {"does not take 2 tensors"});
  expect_error([&] { in_chunks(two, hidden_, {.chunks = 2}); }, {"does not take 1 tensors"});
  const auto scalar = [](const at::Tensor& x) { return x.sum(); };
  expect_error([&] { in_chunks(scalar, hidden_, {.chunks = 2}); }, {"cannot be concatenated", "reduce = \"sum\""});
  const auto fails = [](const at::Tensor& x) -> at::Tensor {
    TORCH_CHECK(x.size(0) > 6, "an error of the function's");
    return x;
  };
  expect_error([&] { in_chunks(fails, hidden_, {.chunks = 2}); }, {"an error of the function's"});
}

TEST_F(InChunksTest, ResultsThatDoNotHaveARowForEachRowAreRefused) {
  const std::vector<std::function<at::Tensor(const at::Tensor&)>> others = {
      [](const at::Tensor& x) { return x.t(); },
      [](const at::Tensor& x) { return x.sum(0, /*keepdim=*/true); },
      [](const at::Tensor& x) { return x.repeat_interleave(2, 0); },
  };
  for (const auto& fn : others) {
    expect_error(
        [&] { in_chunks(fn, hidden_, {.chunks = 4}); },
        {"in_chunks: result 0 of the function has", "rows along dimension 0 for a chunk of", "reduce = \"sum\""});
    EXPECT_TRUE(at::equal(in_chunks(fn, hidden_, {.chunks = 1}), fn(hidden_)));  // one call
  }
}

TEST_F(InChunksTest, InstanceNormRunsInChunksUnlessItUpdatesRunningStatistics) {
  const at::Tensor images = sample({6, 3, 8});
  const at::Tensor mean = at::zeros({3}), variance = at::ones({3});
  const auto normalised = [](const at::Tensor& x) {
    return at::instance_norm(x, {}, {}, {}, {}, true, 0.1, 1e-5, false);
  };
  EXPECT_TRUE(same_bits(in_chunks(normalised, images, {.chunks = 3}), normalised(images)));
  const auto updating = [&](const at::Tensor& x) {
    return at::instance_norm(x, {}, {}, mean, variance, true, 0.1, 1e-5, false);
  };
  expect_error([&] { in_chunks(updating, images, {.chunks = 3}); },
               {"the function runs aten::instance_norm in training"});
}

TEST_F(InChunksTest, BatchNormInTrainingIsRefusedByNameAndInEvaluationIsNot) {
  const at::Tensor mean = at::zeros({kColumns}), variance = at::ones({kColumns});
  const auto normalised = [&](bool training) {
    return [&, training](const at::Tensor& x) {
      return at::batch_norm(x, {}, {}, mean, variance, training, 0.1, 1e-5, false);
    };
  };
  const std::vector<ChunkOptions> ways = {{.chunks = 3}, {.bytes = 1 << 12}};
  for (const ChunkOptions& options : ways) {
    expect_error([&] { in_chunks(normalised(true), hidden_, options); },
                 {"in_chunks: the function runs aten::batch_norm in training", "Call eval() on the module"});
    EXPECT_TRUE(same_bits(in_chunks(normalised(false), hidden_, options), normalised(false)(hidden_)));
  }
  EXPECT_NO_THROW(in_chunks(normalised(true), hidden_, {.chunks = 1}));
}

TEST_F(InChunksTest, NoRowsAreOneChunkAndThereAreNoMoreChunksThanRows) {
  int calls = 0;
  const auto fn = [&](const at::Tensor& x) {
    ++calls;
    return x.neg();
  };
  EXPECT_EQ(in_chunks(fn, hidden_.slice(0, 0, 0), {.chunks = 3}).sizes(), (at::IntArrayRef{0, hidden_.size(1)}));
  EXPECT_EQ(std::exchange(calls, 0), 1);
  EXPECT_TRUE(same_bits(in_chunks(fn, hidden_.slice(0, 0, 2), {.chunks = 3}), hidden_.slice(0, 0, 2).neg()));
  EXPECT_EQ(calls, 2);
}

}  // namespace
}  // namespace ac2::test

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "ac2/query_chunked_attention.h"
#include "ac2/scope.h"
#include "ac2/tiled_mlp.h"
#include "ac2/trace.h"
#include "tests/support/allocation_log.h"
#include "tests/support/regions.h"

namespace ac2::test {
namespace {

constexpr int64_t kDouble = 8;

at::Tensor numbers(at::IntArrayRef sizes) {
  return sample(sizes).detach().to(at::kDouble).requires_grad_();
}

void expect_close(const Tensors& actual, const Tensors& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_EQ(actual[i].sizes(), expected[i].sizes()) << i;
    EXPECT_TRUE(at::allclose(actual[i], expected[i], 1e-10, 1e-12)) << i;
  }
}

// The most bytes that are there on top of what was there before, in forward and in backward.
std::pair<int64_t, int64_t> peaks(const std::function<at::Tensor()>& fn, const Tensors& inputs) {
  AllocationLog& log = AllocationLog::install();
  at::Tensor y;
  const std::vector<int64_t> forward = log.during([&] { y = fn(); });
  Tensors gradients;
  const at::Tensor ones = at::ones_like(y);
  const std::vector<int64_t> backward = log.during([&] { gradients = torch::autograd::grad({y}, inputs, {ones}); });
  return {*std::max_element(forward.begin(), forward.end()), *std::max_element(backward.begin(), backward.end())};
}

class TiledMlpTest : public CleanTest {
 protected:
  static constexpr int64_t kTokens = 512, kFeatures = 4, kInner = 64;
  at::Tensor mlp(const at::Tensor& x) const { return at::linear(at::tanh(at::linear(x, up_)), down_); }
  Tensors gradients(const at::Tensor& y) const { return gradients_of({y}, {hidden_, up_, down_}); }

  const at::Tensor hidden_ = numbers({2, kTokens / 2, kFeatures});
  const at::Tensor up_ = numbers({kInner, kFeatures}), down_ = numbers({kFeatures, kInner});
};

TEST_F(TiledMlpTest, ResultsAndGradientsArePlainOnesButForTheOrderOfAdditions) {
  const Tensors expected = gradients(mlp(hidden_));
  for (const std::optional<int64_t> chunks : {std::optional<int64_t>(), {1}, {5}, {1000}}) {
    const at::Tensor y = tiled_mlp([&](const at::Tensor& x) { return mlp(x); }, hidden_, chunks);
    expect_close({y}, {mlp(hidden_)});
    expect_close(gradients(y), expected);
  }
}

TEST_F(TiledMlpTest, AChunkHasAsManyTokensAsATokenHasFeaturesAndAtLeast64) {
  std::vector<int64_t> tokens;
  const auto count = [&](const at::Tensor& x) {
    tokens.push_back(x.size(0));
    return x.sin();
  };
  tiled_mlp(count, at::zeros({2, 100, 4}));
  EXPECT_EQ(tokens, (std::vector<int64_t>{50, 50, 50, 50}));
  tokens.clear();
  tiled_mlp(count, at::zeros({300, 128}));
  EXPECT_EQ(tokens, (std::vector<int64_t>{100, 100, 100}));
}

TEST_F(TiledMlpTest, TheInsideOfOneChunkIsThereAtATime) {
  constexpr int64_t inner = kTokens * kInner * kDouble, outer = kTokens * kFeatures * kDouble, chunks = 8;
  const auto plain = peaks([&] { return mlp(hidden_); }, {hidden_, up_, down_});
  EXPECT_EQ(plain.first, 2 * inner + outer);
  const auto tiled = peaks([&] { return tiled_mlp([&](const at::Tensor& x) { return mlp(x); }, hidden_, chunks); },
                           {hidden_, up_, down_});
  EXPECT_EQ(tiled.first, 2 * inner / chunks + outer);
  EXPECT_LE(tiled.second, 3 * inner / chunks + 2 * outer + 4 * kInner * kFeatures * kDouble);
}

TEST_F(TiledMlpTest, BadInputIsAnErrorThatSaysWhatWasExpected) {
  const auto same = [](const at::Tensor& x) { return x; };
  EXPECT_EQ(tiled_mlp(same, at::zeros({3})).sizes(), at::IntArrayRef({3}));  // one token
  expect_error([&] { tiled_mlp(same, at::zeros({})); }, {"hidden is []", "[..., features]"});
  expect_error([&] { tiled_mlp(same, hidden_, 0); }, {"positive", "is 0"});
  expect_error(
      [&] {
        tiled_mlp([](const at::Tensor& x) { return x.t(); }, at::zeros({8, 3}), 2);
      },
      {"a tensor of [3, 4] of [4, 3]", "the tokens"});
  expect_error([&] { tiled_mlp(nullptr, hidden_); }, {"no function"});
}

class QueryChunkedAttentionTest : public CleanTest {
 protected:
  static constexpr int64_t kBatch = 2, kHeads = 3, kQueries = 70, kKeys = 50, kFeatures = 8;

  at::Tensor plain(const QueryChunkOptions& options) const {
    const auto mask = options.attn_mask.defined() ? std::optional<at::Tensor>(options.attn_mask) : std::nullopt;
    return at::scaled_dot_product_attention(query_, key_, value_, mask, 0, options.is_causal, options.scale,
                                            options.enable_gqa);
  }
  void expect_plain(QueryChunkOptions options) const {
    Tensors inputs = {query_, key_, value_};
    if (options.attn_mask.defined() && options.attn_mask.requires_grad()) inputs.push_back(options.attn_mask);
    const at::Tensor expected = plain(options);
    const Tensors expected_gradients = gradients_of({expected}, inputs);
    for (const std::optional<int64_t> chunks : {std::optional<int64_t>(), {1}, {4}, {70}}) {
      options.chunks = chunks;
      const at::Tensor y = query_chunked_attention(query_, key_, value_, options);
      expect_close({y}, {expected});
      expect_close(gradients_of({y}, inputs), expected_gradients);
    }
  }

  const at::Tensor query_ = numbers({kBatch, kHeads, kQueries, kFeatures});
  const at::Tensor key_ = numbers({kBatch, kHeads, kKeys, kFeatures});
  const at::Tensor value_ = numbers({kBatch, kHeads, kKeys, kFeatures});
};

TEST_F(QueryChunkedAttentionTest, ResultsAndGradientsArePlainOnesButForTheOrderOfAdditions) {
  expect_plain({});
  expect_plain({.is_causal = true});
  expect_plain({.scale = 0.3});
  expect_plain({.attn_mask = numbers({kHeads, kQueries, kKeys})});
  expect_plain({.attn_mask = numbers({1, kKeys})});
  expect_plain({.attn_mask = constant({kQueries, kKeys}).gt(-1)});
}

TEST_F(QueryChunkedAttentionTest, TheScoresOfOneChunkAreThereAtATime) {
  const bool had_flash = at::globalContext().userEnabledFlashSDP();
  at::globalContext().setSDPUseFlash(false);
  constexpr int64_t chunks = 10, scores = kBatch * kHeads * kQueries * kKeys * kDouble;
  constexpr int64_t keys = kBatch * kHeads * kKeys * kFeatures * kDouble;
  constexpr int64_t queries = kBatch * kHeads * kQueries * kFeatures * kDouble;
  const auto of_plain = peaks([&] { return plain({}); }, {query_, key_, value_});
  const auto chunked =
      peaks([&] { return query_chunked_attention(query_, key_, value_, {.chunks = chunks}); }, {query_, key_, value_});
  at::globalContext().setSDPUseFlash(had_flash);
  EXPECT_GE(of_plain.first, 2 * scores);
  EXPECT_LE(chunked.first, scores / chunks + keys + queries);
  EXPECT_LE(chunked.second, 3 * scores / chunks + 4 * keys + queries);
}

TEST_F(QueryChunkedAttentionTest, InsideARegionItIsReplayed) {
  const Tensors expected = gradients_of({plain({})}, {query_, key_, value_});
  std::optional<PolicyScope> scope(std::in_place, "recompute_all");
  const auto trace = scope->trace();
  const at::Tensor y = query_chunked_attention(query_, key_, value_, {.chunks = 3});
  scope.reset();
  expect_close(gradients_of({y}, {query_, key_, value_}), expected);
  EXPECT_GT(trace->stats().recomputed_ops, 0);
}

TEST_F(QueryChunkedAttentionTest, BadInputIsAnErrorThatSaysWhatWasExpected) {
  const auto with = [&](const QueryChunkOptions& options) { query_chunked_attention(query_, key_, value_, options); };
  expect_error([&] { query_chunked_attention({}, key_, value_); },
               {"query is undefined", "[..., positions, features]"});
  expect_error([&] { query_chunked_attention(query_, key_, value_.slice(2, 1)); }, {"49 positions", "key has 50"});
  expect_error([&] { with({.attn_mask = constant({3, kKeys})}); }, {"attn_mask is [3, 50]", "70 or 1, 50"});
  expect_error([&] { with({.attn_mask = constant({1, kKeys}), .is_causal = true}); }, {"both is_causal and attn_mask"});
  expect_error([&] { with({.chunks = 0}); }, {"positive", "is 0"});
}

}  // namespace
}  // namespace ac2::test

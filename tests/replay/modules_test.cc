// LibTorch's modules, trained plain and in regions under every kind of policy: outputs, gradients,
// buffers and random state are bitwise the same.
#include "tests/support/modules.h"

namespace ac2::test {
namespace {

using torch::nn::AnyModule;
using torch::nn::Sequential;

using ModulesTest = CleanTest;

// Products, convolutions and attention saved, the rest recomputed.
Policy save_products() {
  return saving({"aten::mm", "aten::addmm", "aten::bmm", "aten::convolution",
                 "aten::_scaled_dot_product_flash_attention_for_cpu"});
}

void expect_same_sequential(const std::function<Sequential()>& make, const Tensors& inputs) {
  for (const Policy& policy : {Policy("recompute_all"), Policy("must_save_all"), save_products()}) {
    Stats stats = expect_same_training<Sequential>(
        make, [](Sequential& m, const Tensors& in) { return Tensors{m->forward(in[0])}; }, inputs, policy);
    EXPECT_GT(stats.forward.recorded_ops, 0);
  }
}

TEST_F(ModulesTest, ConvolutionsBatchNormAndInPlaceRelu) {
  expect_same_sequential(
      [] {
        return Sequential(torch::nn::Conv2d(3, 6, 3), torch::nn::BatchNorm2d(6),
                          torch::nn::ReLU(torch::nn::ReLUOptions(true)), torch::nn::MaxPool2d(2),
                          torch::nn::Conv2d(torch::nn::Conv2dOptions(6, 4, 3).padding(1).stride(2)),
                          torch::nn::BatchNorm2d(4), torch::nn::LeakyReLU(torch::nn::LeakyReLUOptions().inplace(true)),
                          torch::nn::AvgPool2d(2), torch::nn::Flatten(), torch::nn::Dropout(0.25),
                          torch::nn::Linear(4, 5), torch::nn::LogSoftmax(1));
      },
      {sample({2, 3, 12, 12})});
}

TEST_F(ModulesTest, MixedConvolutions) {
  expect_same_sequential(
      [] {
        return Sequential(torch::nn::ConvTranspose1d(torch::nn::ConvTranspose1dOptions(3, 4, 3).stride(2)),
                          torch::nn::GELU(), torch::nn::Conv1d(torch::nn::Conv1dOptions(4, 4, 3).groups(2)),
                          torch::nn::SiLU(), torch::nn::AdaptiveAvgPool1d(4), torch::nn::Softplus());
      },
      {sample({2, 3, 7})});
}

TEST_F(ModulesTest, LayerAndGroupAndInstanceNorm) {
  expect_same_sequential(
      [] {
        return Sequential(
            torch::nn::LayerNorm(torch::nn::LayerNormOptions({5, 5})), torch::nn::Tanh(),
            torch::nn::GroupNorm(torch::nn::GroupNormOptions(2, 4)), torch::nn::Sigmoid(),
            torch::nn::InstanceNorm2d(torch::nn::InstanceNorm2dOptions(4).affine(true).track_running_stats(true)),
            torch::nn::ELU());
      },
      {sample({2, 4, 5, 5})});
}

TEST_F(ModulesTest, BatchNormChangesItsStatisticsOnce) {
  at::Tensor x = sample({6, 3});
  torch::nn::BatchNorm1d norm(3), plain(3);
  at::Tensor expected = plain->forward(x).sin();
  at::Tensor y;
  std::shared_ptr<const Trace> trace;
  {
    PolicyScope scope("recompute_all");
    trace = scope.trace();
    y = norm->forward(x).sin();
  }
  for (int backward = 0; backward < 2; ++backward) {
    EXPECT_TRUE(same_bits(gradient_of(y, x, true), gradient_of(expected, x, true)));
    EXPECT_TRUE(same_bits(norm->running_mean, plain->running_mean));
    EXPECT_TRUE(same_bits(norm->running_var, plain->running_var));
    EXPECT_EQ(norm->num_batches_tracked.item<int64_t>(), 1);
  }
  // The norm itself, for sin and its own backward, in both.
  EXPECT_EQ(trace->stats().recomputed_ops, 2);
  // Its results do not depend on the statistics that it updates: these need not be kept.
  EXPECT_EQ(trace->stats().copied_bytes, 0);
}

TEST_F(ModulesTest, BatchNormInEvaluationUsesItsStatistics) {
  Stats stats = expect_same_training<torch::nn::BatchNorm1d>(
      [] {
        torch::nn::BatchNorm1d norm(3);
        norm->running_mean.copy_(at::tensor({0.5F, -1.0F, 2.0F}));
        norm->eval();
        return norm;
      },
      [](torch::nn::BatchNorm1d& m, const Tensors& in) { return Tensors{m->forward(in[0]).sin()}; }, {sample({6, 3})});
  EXPECT_EQ(stats.forward.copied_bytes, 0);
}

TEST_F(ModulesTest, OneBatchNormUsedTwiceInARegion) {
  expect_same_training<torch::nn::BatchNorm1d>(
      [] { return torch::nn::BatchNorm1d(3); },
      [](torch::nn::BatchNorm1d& m, const Tensors& in) {
        return Tensors{m->forward(m->forward(in[0]).sin()).cos(), m->running_mean * 2};
      },
      {sample({6, 3})});
}

TEST_F(ModulesTest, Lstm) {
  for (const Policy& policy : {Policy("recompute_all"), Policy("must_save_all"), save_products()}) {
    expect_same_training<torch::nn::LSTM>(
        [] { return torch::nn::LSTM(torch::nn::LSTMOptions(4, 5).num_layers(2).bidirectional(true).dropout(0.3)); },
        [](torch::nn::LSTM& m, const Tensors& in) {
          auto [output, state] = m->forward(in[0]);
          return Tensors{output, std::get<0>(state), std::get<1>(state)};
        },
        {sample({6, 3, 4})}, policy);
  }
}

TEST_F(ModulesTest, GruFromAGivenState) {
  expect_same_training<torch::nn::GRU>([] { return torch::nn::GRU(torch::nn::GRUOptions(4, 5).batch_first(true)); },
                                       [](torch::nn::GRU& m, const Tensors& in) {
                                         auto [output, state] = m->forward(in[0].sin(), in[1].sin());
                                         return Tensors{output.cos(), state};
                                       },
                                       {sample({3, 6, 4}), sample({1, 3, 5})});
}

TEST_F(ModulesTest, LstmCellInALoop) {
  expect_same_training<torch::nn::LSTMCell>([] { return torch::nn::LSTMCell(4, 5); },
                                            [](torch::nn::LSTMCell& m, const Tensors& in) {
                                              std::tuple<at::Tensor, at::Tensor> state = m->forward(in[0][0]);
                                              for (int i = 1; i < 5; ++i) state = m->forward(in[0][i], state);
                                              return Tensors{std::get<0>(state), std::get<1>(state)};
                                            },
                                            {sample({5, 2, 4})});
}

TEST_F(ModulesTest, Embedding) {
  at::Tensor tokens = at::tensor({1, 4, 1, 0}).to(at::kLong);
  Stats stats = expect_same_training<torch::nn::Embedding>(
      [] { return torch::nn::Embedding(torch::nn::EmbeddingOptions(6, 3).padding_idx(0)); },
      [](torch::nn::Embedding& m, const Tensors& in) { return Tensors{m->forward(in[0]).sin()}; }, {tokens});
  EXPECT_EQ(stats.backward.recomputed_ops, 1);  // the rows, for sin
}

TEST_F(ModulesTest, EmbeddingBag) {
  at::Tensor tokens = at::tensor({1, 4, 1, 0, 2, 5}).to(at::kLong);
  at::Tensor offsets = at::tensor({0, 2, 3}).to(at::kLong);
  using Mode = torch::nn::EmbeddingBagOptions;
  for (const Mode& options :
       {Mode(6, 3).mode(torch::kSum), Mode(6, 3).mode(torch::kMean), Mode(6, 3).mode(torch::kMax)}) {
    expect_same_training<torch::nn::EmbeddingBag>(
        [&] { return torch::nn::EmbeddingBag(options); },
        [](torch::nn::EmbeddingBag& m, const Tensors& in) { return Tensors{m->forward(in[0], in[1]).sin().cos()}; },
        {tokens, offsets});
  }
}

TEST_F(ModulesTest, MultiheadAttention) {
  expect_same_training<torch::nn::MultiheadAttention>(
      [] { return torch::nn::MultiheadAttention(torch::nn::MultiheadAttentionOptions(8, 2).dropout(0.2)); },
      [](torch::nn::MultiheadAttention& m, const Tensors& in) {
        auto [output, weights] = m->forward(in[0], in[0], in[0].sin());
        return Tensors{output, weights};
      },
      {sample({4, 3, 8})});
}

TEST_F(ModulesTest, TransformerEncoderLayer) {
  for (const Policy& policy : {Policy("recompute_all"), Policy("must_save_all"), save_products()}) {
    expect_same_training<torch::nn::TransformerEncoderLayer>(
        [] {
          return torch::nn::TransformerEncoderLayer(
              torch::nn::TransformerEncoderLayerOptions(8, 2).dim_feedforward(16).dropout(0.1));
        },
        [](torch::nn::TransformerEncoderLayer& m, const Tensors& in) { return Tensors{m->forward(in[0])}; },
        {sample({4, 3, 8})}, policy);
  }
}

TEST_F(ModulesTest, ScaledDotProductAttention) {
  // Causal, masked and with dropout: the fused kernel and the composite one.
  expect_same_gradients(
      [](const Tensors& in) {
        at::Tensor mask = at::ones({4, 4}, at::kBool).tril();
        return Tensors{at::scaled_dot_product_attention(in[0].sin(), in[1], in[2]),
                       at::scaled_dot_product_attention(in[0], in[1], in[2].sin(), {}, 0.0, true),
                       at::scaled_dot_product_attention(in[0], in[1], in[2], mask),
                       at::scaled_dot_product_attention(in[0], in[1].cos(), in[2], {}, 0.2, true)};
      },
      {sample({2, 2, 4, 3}), sample({2, 2, 4, 3}), sample({2, 2, 4, 3})});
}

TEST_F(ModulesTest, FusedAttentionIsReplayedOnce) {
  auto fn = [](const Tensors& in) {
    return Tensors{at::scaled_dot_product_attention(in[0], in[1], in[2], {}, 0.0, true).sum()};
  };
  // Its backward needs its output and the log-sum-exp, both of one replay.
  expect_same_gradients_and_replays(fn, {sample({2, 2, 4, 8}), sample({2, 2, 4, 8}), sample({2, 2, 4, 8})}, 1);
}

TEST_F(ModulesTest, Losses) {
  at::Tensor classes = at::tensor({1, 0, 3}).to(at::kLong);
  expect_same_gradients(
      [](const Tensors& in) {
        at::Tensor a = in[0].sin();
        at::Tensor target = in[1].sigmoid();
        return Tensors{at::cross_entropy_loss(a, in[2]),
                       at::cross_entropy_loss(a, in[2], in[3].exp(), at::Reduction::Mean, -100, 0.1),
                       at::mse_loss(a, target),
                       at::smooth_l1_loss(a, target),
                       at::binary_cross_entropy_with_logits(a, target),
                       at::binary_cross_entropy(a.sigmoid(), target),
                       at::kl_div(a.log_softmax(1), target),
                       at::cosine_similarity(a, target).cos()};
      },
      {sample({3, 4}), constant({3, 4}), classes, constant({4})});
}

TEST_F(ModulesTest, TrainingWithAnOptimizerStaysTheSame) {
  auto train_steps = [](bool regions) {
    torch::manual_seed(3);
    Sequential model(torch::nn::Linear(6, 16), torch::nn::BatchNorm1d(16), torch::nn::GELU(), torch::nn::Dropout(0.2),
                     torch::nn::Linear(16, 4));
    torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(1e-2));
    at::Tensor x = at::randn({8, 6}), target = at::randint(4, {8}).to(at::kLong);
    for (int step = 0; step < 5; ++step) {
      optimizer.zero_grad();
      at::Tensor y =
          regions ? apply_ac_policy_fn([&] { return model->forward(x); }, "recompute_all") : model->forward(x);
      at::cross_entropy_loss(y, target).backward();
      optimizer.step();
    }
    Tensors result = model->parameters();
    for (const at::Tensor& buffer : model->buffers()) result.push_back(buffer);
    return result;
  };
  expect_same_bits(train_steps(true), train_steps(false), "parameter");
}

}  // namespace
}  // namespace ac2::test

// Replays on a GPU: bit for bit what plain autograd computes, whatever the kernels draw and write in secret.
#include <ATen/Context.h>

#include <optional>
#include <string>
#include <vector>

#include "policies/strategies.h"
#include "tests/gpu/gpu.h"

namespace ac2::test {
namespace {

class GpuReplayTest : public GpuTest {
 protected:
  void TearDown() override {
    use_attention(true, true, true, true);
    GpuTest::TearDown();
  }

  static void use_attention(bool flash, bool efficient, bool math, bool cudnn) {
    at::Context& context = at::globalContext();
    context.setSDPUseFlash(flash);
    context.setSDPUseMemEfficient(efficient);
    context.setSDPUseMath(math);
    context.setSDPUseCuDNN(cudnn);
  }
};

// Each builds policies anew: a stateful one belongs to one comparison.
void expect_same_under_every_policy(const TensorFn& fn, const Tensors& inputs) {
  for (const char* name : {"recompute_all", "must_save_all"}) {
    SCOPED_TRACE(name);
    expect_same_gradients(fn, inputs, name);
  }
  SCOPED_TRACE("save_compute_intensive");
  expect_same_gradients(fn, inputs, policies::save_compute_intensive());
}

TEST_F(GpuReplayTest, PerceptronsWithDropoutHaveTheGradientsOfPlainAutograd) {
  for (const at::ScalarType type : {at::kFloat, at::kHalf, at::kBFloat16}) {
    SCOPED_TRACE(toString(type));
    expect_same_under_every_policy(
        [](const Tensors& in) {
          at::Tensor x = in[0];
          for (int i = 0; i < 3; ++i) {
            x = at::layer_norm(x, {64});
            x = at::dropout(at::gelu(at::linear(x, in[1], in[2])), 0.2, true) + x;
          }
          return Tensors{x};
        },
        {gpu_sample({32, 64}, type), gpu_sample({64, 64}, type), gpu_sample({64}, type)});
  }
}

TEST_F(GpuReplayTest, WritesAreReplayedOnWhatTheyWereMadeOn) {
  expect_same_under_every_policy(
      [](const Tensors& in) {
        at::Tensor a = in[0].sin();
        a.add_(in[0]).slice(0, 0, 8).mul_(2);
        a.relu_();
        return Tensors{a.cos()};
      },
      {gpu_sample({16, 40})});
}

TEST_F(GpuReplayTest, CudnnBatchNormWritesItsStatisticsOnce) {
  if (!at::globalContext().hasCuDNN()) GTEST_SKIP() << "no cuDNN";
  for (const at::MemoryFormat format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
    const at::Tensor x = gpu_constant({8, 16, 7, 7}).contiguous(format).requires_grad_(true);
    expect_same_under_every_policy(
        [](const Tensors& in) {
          const at::Tensor y =
              std::get<0>(at::cudnn_batch_norm(in[0].sin(), in[1], in[2], in[3], in[4], true, 0.1, 1e-5));
          return Tensors{y.relu(), at::batch_norm(y, in[1], in[2], in[3], in[4], true, 0.1, 1e-5, true)};
        },
        {x, gpu_sample({16}), gpu_sample({16}), at::zeros({16}, at::kCUDA), at::ones({16}, at::kCUDA)});
  }
}

TEST_F(GpuReplayTest, ConvolutionsAreExact) {
  expect_same_under_every_policy(
      [](const Tensors& in) {
        const at::Tensor x = at::conv2d(in[0], in[1], {}, 1, 1).relu();
        return Tensors{at::max_pool2d(at::conv2d(x, in[2], {}, 2), 2)};
      },
      {gpu_sample({4, 8, 16, 16}), gpu_sample({12, 8, 3, 3}), gpu_sample({6, 12, 3, 3})});
}

// Two layers and two calls: dropout between the layers, from a state that each call leaves to the next.
TEST_F(GpuReplayTest, CudnnLstmWithDropoutDrawsTheSame) {
  if (!at::globalContext().hasCuDNN()) GTEST_SKIP() << "no cuDNN";
  constexpr int64_t kIn = 12, kHidden = 20;
  Tensors inputs = {gpu_sample({7, 3, kIn}), gpu_constant({2, 3, kHidden}), gpu_constant({2, 3, kHidden})};
  for (const int64_t in : {kIn, kHidden}) {
    inputs.push_back(gpu_sample({4 * kHidden, in}));
    inputs.push_back(gpu_sample({4 * kHidden, kHidden}));
    inputs.push_back(gpu_sample({4 * kHidden}));
    inputs.push_back(gpu_sample({4 * kHidden}));
  }
  expect_same_under_every_policy(
      [](const Tensors& in) {
        const std::vector<at::Tensor> weights(in.begin() + 3, in.end());
        const std::vector<at::Tensor> state = {in[1], in[2]};
        at::Tensor out;
        for (int i = 0; i < 2; ++i) {
          const auto [y, h, c] = at::lstm(in[0].sin(), state, weights, true, 2, 0.4, true, false, false);
          out = out.defined() ? out + y.cos() : y.cos();
        }
        return Tensors{out};
      },
      inputs);
}

TEST_F(GpuReplayTest, AttentionWithDropoutDrawsTheSame) {
  struct Kind {
    const char* name;
    bool flash, efficient, math, cudnn;
    at::ScalarType type;
  };
  for (const Kind& kind :
       {Kind{"flash", true, false, false, false, at::kHalf}, Kind{"efficient", false, true, false, false, at::kFloat},
        Kind{"cudnn", false, false, false, true, at::kHalf}, Kind{"math", false, false, true, false, at::kFloat}}) {
    SCOPED_TRACE(kind.name);
    use_attention(kind.flash, kind.efficient, kind.math, kind.cudnn);
    for (const double dropout : {0.0, 0.2}) {
      const Tensors inputs = {gpu_sample({2, 4, 64, 32}, kind.type), gpu_sample({2, 4, 64, 32}, kind.type),
                              gpu_sample({2, 4, 64, 32}, kind.type)};
      const auto attend = [dropout](const Tensors& in) {
        return Tensors{
            at::scaled_dot_product_attention(in[0].sin(), in[1].sin(), in[2].sin(), {}, dropout, true).cos()};
      };
      try {
        attend(inputs);
      } catch (const c10::Error&) {
        continue;  // this GPU has no such kernel
      }
      expect_same_under_every_policy(attend, inputs);
    }
  }
}

struct Draw {
  const char* name;
  at::Tensor (*draw)(const at::Tensor& t, std::optional<at::Generator> generator);
};

TEST_F(GpuReplayTest, EveryDrawIsReplayedFromTheDefaultGeneratorAndFromTheUsers) {
  const Draw draws[] = {
      {"rand", [](const at::Tensor& t, auto g) { return at::rand(t.sizes(), g, t.options()); }},
      {"randn without an index", [](const at::Tensor& t, auto g) { return at::randn(t.sizes(), g, at::kCUDA); }},
      {"bernoulli", [](const at::Tensor& t, auto g) { return at::bernoulli(t.detach().sigmoid(), g); }},
      {"multinomial",
       [](const at::Tensor& t, auto g) { return t.detach().sigmoid().multinomial(40, true, g).to(at::kFloat); }},
      {"normal_", [](const at::Tensor& t, auto g) { return at::zeros_like(t).normal_(1, 2, g); }},
      {"exponential_", [](const at::Tensor& t, auto g) { return at::empty_like(t).exponential_(2, g); }},
      {"randperm", [](const at::Tensor& t,
                      auto g) { return at::randperm(t.numel(), g, t.options().dtype(at::kLong)).to(at::kFloat); }},
  };
  for (const Draw& draw : draws) {
    for (const bool own : {false, true}) {
      SCOPED_TRACE(std::string(draw.name) + (own ? ", the user's generator" : ", the default one"));
      std::vector<at::Tensor> states;
      expect_same_gradients(
          [&](const Tensors& in) {
            std::optional<at::Generator> generator;
            if (own) {
              generator = at::globalContext().defaultGenerator(at::kCUDA).clone();
              generator->set_current_seed(7);
            }
            const at::Tensor y = in[0] * draw.draw(in[0], generator);
            if (own) states.push_back(generator->get_state());
            return Tensors{y * at::rand_like(in[0])};
          },
          {gpu_sample({40})});
      if (own) {
        EXPECT_TRUE(same_bits(states.at(1), states.at(0)));
      }
    }
  }
}

// rand_like draws where its result is, not where its argument is.
TEST_F(GpuReplayTest, ADrawForAnotherDeviceThanTheArgumentsIsReplayedFromThatDevicesGenerator) {
  expect_same_gradients(
      [](const Tensors& in) { return Tensors{in[0] * at::rand_like(in[1], at::TensorOptions(at::kCUDA)).cos()}; },
      {gpu_sample({40}), constant({40})});
}

// cuDNN begins a new sequence for dropout when somebody has set a seed: a replay must not look like that.
TEST_F(GpuReplayTest, AReplayedDropoutLeavesCudnnsStateAsItWas) {
  if (!at::globalContext().hasCuDNN()) GTEST_SKIP() << "no cuDNN";
  const at::Tensor input = gpu_constant({5, 2, 8}), state = gpu_constant({2, 2, 8}), x = gpu_sample({40});
  std::vector<at::Tensor> weights;
  for (int layer = 0; layer < 2; ++layer) {
    for (int i = 0; i < 2; ++i) weights.push_back(gpu_constant({32, 8}));
    for (int i = 0; i < 2; ++i) weights.push_back(gpu_constant({32}));
  }
  const auto run = [&](bool region) {
    at::manual_seed(3);
    const auto lstm = [&] {
      return std::get<0>(at::lstm(input, {state, state}, weights, true, 2, 0.5, true, false, false));
    };
    const at::Tensor first = lstm();
    at::Tensor y;
    {
      std::optional<PolicyScope> scope;
      if (region) scope.emplace("recompute_all");
      y = at::dropout(x.sin(), 0.5, true).cos();
    }
    const at::Tensor gradient = gradient_of(y, x);
    return Tensors{first, gradient, lstm(), at::rand({3}, at::kCUDA)};
  };
  const Tensors expected = run(false);
  expect_same_bits(run(true), expected, "result");
}

TEST_F(GpuReplayTest, VerifyModeFindsNothing) {
  const at::Tensor x = gpu_sample({2, 4, 64, 32}, at::kHalf);
  at::Tensor y;
  {
    PolicyScope scope("recompute_all", {.verify = true});
    const at::Tensor a = x.sin();
    y = at::dropout(at::scaled_dot_product_attention(a, a, a), 0.1, true).cos();
  }
  EXPECT_TRUE(gradient_of(y, x).defined());
}

}  // namespace
}  // namespace ac2::test

// Random ops are replayed on the state that they drew from, and the user's generators are left as
// they were. (expect_same_gradients compares the default generator after forward and after
// backward.)
#include <ATen/CPUGeneratorImpl.h>
#include <torch/csrc/autograd/autograd.h>

#include <atomic>
#include <optional>
#include <ostream>
#include <thread>
#include <vector>

#include "tests/support/regions.h"

namespace ac2::test {
namespace {

using RandomTest = CleanTest;

at::Generator generator(uint64_t seed) {
  return at::make_generator<at::CPUGeneratorImpl>(seed);
}

struct Draw {
  const char* name;
  int64_t replays;
  // Random numbers of the shape of t, whose values may matter.
  at::Tensor (*draw)(const at::Tensor& t, std::optional<at::Generator> generator);
};

void PrintTo(const Draw& draw, std::ostream* out) {
  *out << draw.name;
}

class EveryDrawTest : public CleanTest, public ::testing::WithParamInterface<Draw> {};

TEST_P(EveryDrawTest, FromTheDefaultGenerator) {
  const Draw& draw = GetParam();
  expect_same_gradients_and_replays(
      [&draw](const Tensors& in) {
        return Tensors{in[0] * draw.draw(in[1], std::nullopt), at::rand({2})};
      },
      {sample({40}), at::rand({40})}, draw.replays);
}

TEST_P(EveryDrawTest, FromAGeneratorOfTheUsers) {
  const Draw& draw = GetParam();
  std::vector<at::Tensor> states;
  std::vector<at::Tensor> later;
  expect_same_gradients_and_replays(
      [&](const Tensors& in) {
        at::Generator own = generator(7);
        at::rand({3}, own);
        at::Tensor y = in[0] * draw.draw(in[1], own);
        states.push_back(own.get_state());
        later.push_back(at::rand({2}, own));
        return Tensors{y, later.back()};
      },
      {sample({40}), at::rand({40})}, draw.replays);
  EXPECT_TRUE(same_bits(states.at(1), states.at(0)));
  EXPECT_TRUE(same_bits(later.at(1), later.at(0)));
}

INSTANTIATE_TEST_SUITE_P(
    Of, EveryDrawTest,
    ::testing::Values(
        Draw{"rand", 1, [](const at::Tensor& t, auto g) { return at::rand(t.sizes(), g); }},
        Draw{"randn", 1, [](const at::Tensor& t, auto g) { return at::randn(t.sizes(), g); }},
        // Below and above 16 elements, normal_ draws differently.
        Draw{"normal_of_few", 3, [](const at::Tensor& t, auto g) { return at::randn({5}, g).sum() + t; }},
        Draw{"randint", 3, [](const at::Tensor& t, auto g) { return at::randint(9, t.sizes(), g).to(at::kFloat) * 2; }},
        Draw{"randperm", 2, [](const at::Tensor& t, auto g) { return at::randperm(t.numel(), g).to(at::kFloat); }},
        Draw{"bernoulli", 1, [](const at::Tensor& t, auto g) { return at::bernoulli(t, g); }},
        Draw{"poisson", 1, [](const at::Tensor& t, auto g) { return at::poisson(t, g); }},
        Draw{"normal", 1, [](const at::Tensor& t, auto g) { return at::normal(t, 2.0, g); }},
        Draw{"multinomial", 2, [](const at::Tensor& t, auto g) { return t.multinomial(40, true, g).to(at::kFloat); }},
        Draw{"bernoulli_in_place", 1, [](const at::Tensor& t, auto g) { return at::empty_like(t).bernoulli_(0.3, g); }},
        Draw{"uniform_in_place", 1, [](const at::Tensor& t, auto g) { return at::empty_like(t).uniform_(-1, 1, g); }},
        Draw{"normal_in_place", 1, [](const at::Tensor& t, auto g) { return at::zeros_like(t).normal_(1, 2, g); }},
        Draw{"exponential_in_place", 1,
             [](const at::Tensor& t, auto g) { return at::empty_like(t).exponential_(2, g); }},
        Draw{"bernoulli_in_part", 2,  // cos, and bernoulli_ on its upper half
             [](const at::Tensor& t, auto g) {
               at::Tensor noise = t.cos();
               noise.slice(0, 0, 20).bernoulli_(0.5, g);
               return noise;
             }}),
    [](const auto& info) { return info.param.name; });

TEST_F(RandomTest, DropoutsMaskIsReplayed) {
  Stats stats = expect_same_gradients(
      [](const Tensors& in) { return Tensors{at::dropout(in[0].sin(), 0.3, true).cos()}; }, {sample({50})});
  // sin; the mask's bernoulli_ on fresh memory, and div_; the product.
  EXPECT_EQ(stats.backward.recomputed_ops, 4);
  EXPECT_EQ(stats.forward.saved_bytes, 50 * 4);
}

TEST_F(RandomTest, DropoutLayerAfterLayer) {
  expect_same_gradients(
      [](const Tensors& in) {
        at::Tensor x = in[0];
        for (int i = 0; i < 5; ++i) x = at::dropout(x.matmul(in[1]).tanh(), 0.1 * (i + 1), true);
        return Tensors{x};
      },
      {sample({6, 8}), sample({8, 8})});
}

TEST_F(RandomTest, DropoutThatDropsNothing) {
  expect_same_gradients(
      [](const Tensors& in) {
        return Tensors{at::dropout(in[0].sin(), 0.5, /*train=*/false).cos(), at::dropout(in[0].sin(), 0.0, true).cos(),
                       at::dropout(in[0].sin(), 1.0, true).cos()};
      },
      {sample({8})});
}

TEST_F(RandomTest, OtherDropouts) {
  expect_same_gradients(
      [](const Tensors& in) {
        at::Tensor a = in[0].sin();
        return Tensors{at::feature_dropout(a, 0.5, true).cos(), at::alpha_dropout(a, 0.5, true).cos(),
                       std::get<0>(at::native_dropout(a, 0.5, true)).cos()};
      },
      {sample({2, 3, 4})});
}

TEST_F(RandomTest, DropoutInPlace) {
  expect_same_gradients(
      [](const Tensors& in) {
        at::Tensor a = in[0].sin();
        at::dropout_(a, 0.5, true);
        return Tensors{a.cos()};
      },
      {sample({20})});
}

TEST_F(RandomTest, RandomizedReluKeepsItsNoise) {
  for (bool training : {true, false}) {
    expect_same_gradients(
        [training](const Tensors& in) {
          return Tensors{at::rrelu(in[0].sin(), 0.1, 0.4, training).cos(), at::rrelu(in[0], 0.1, 0.4, training)};
        },
        {sample({20})});
  }
}

TEST_F(RandomTest, ASampledIndexPicksTheSameElements) {
  expect_same_gradients_and_replays(
      [](const Tensors& in) {
        at::Tensor probabilities = in[0].softmax(1);
        at::Tensor index = probabilities.multinomial(2);
        return Tensors{in[0].gather(1, index)};
      },
      {sample({4, 9})}, 2);  // softmax, multinomial
}

TEST_F(RandomTest, SeedingInsideTheRegion) {
  expect_same_gradients(
      [](const Tensors& in) {
        at::Tensor a = in[0] * at::rand({20});
        at::manual_seed(99);
        at::Tensor b = a * at::rand({20});
        return Tensors{b * at::randn({20})};
      },
      {sample({20})});
}

TEST_F(RandomTest, SeedingBetweenForwardAndBackwardIsKept) {
  at::Tensor x = sample({20});
  auto fn = [](const at::Tensor& x) { return at::dropout(x.sin(), 0.5, true).cos(); };
  at::manual_seed(1);
  at::Tensor expected = gradient_of(fn(x), x);
  at::manual_seed(1);
  at::Tensor y = apply_ac_policy_fn(fn, "recompute_all", x);
  at::manual_seed(2);
  at::Tensor state = generator_state();
  EXPECT_TRUE(same_bits(gradient_of(y, x), expected));
  EXPECT_TRUE(same_bits(generator_state(), state));
}

TEST_F(RandomTest, ASecondBackwardReplaysTheSameDraws) {
  at::Tensor x = sample({20});
  at::Tensor y =
      apply_ac_policy_fn([&] { return at::dropout(x.sin(), 0.5, true).mul(at::randn({20})).cos(); }, "recompute_all");
  at::Tensor first = gradient_of(y, x, /*retain_graph=*/true);
  at::rand({100});
  EXPECT_TRUE(same_bits(gradient_of(y, x), first));
}

TEST_F(RandomTest, AGeneratorThatDiedIsReplayedAllTheSame) {
  expect_same_gradients([](const Tensors& in) { return Tensors{in[0] * at::rand({20}, generator(3))}; },
                        {sample({20})});
}

TEST_F(RandomTest, ASavedDrawIsNotReplayed) {
  expect_same_gradients_and_replays([](const Tensors& in) { return Tensors{in[0] * at::randn({20})}; }, {sample({20})},
                                    0, saving({"aten::randn"}));
}

TEST_F(RandomTest, ThreadsWithGeneratorsOfTheirOwnDoNotDisturbEachOther) {
  auto fn = [](const at::Tensor& x, at::Generator g) {
    at::Tensor y = x;
    for (int i = 0; i < 20; ++i) y = (y.sin() * at::rand({30}, g)).cos();
    return y;
  };
  constexpr int kThreads = 4;
  std::vector<at::Tensor> inputs, expected, gradients(kThreads);
  for (int i = 0; i < kThreads; ++i) {
    inputs.push_back(sample({30}));
    expected.push_back(gradient_of(fn(inputs[i], generator(i)), inputs[i]));
  }
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      at::Tensor y = apply_ac_policy_fn(fn, "recompute_all", inputs[i], generator(i));
      gradients[i] = gradient_of(y, inputs[i]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < kThreads; ++i) EXPECT_TRUE(same_bits(gradients[i], expected[i])) << i;
}

TEST_F(RandomTest, ThreadsThatShareTheDefaultGeneratorReplayWhatTheyDrew) {
  constexpr int kThreads = 4, kSteps = 100;
  std::atomic<int> mismatches = 0;
  at::Tensor x = at::ones({30}).requires_grad_(true);
  // At x = 1 and with output gradients of one, the gradient is the noise, and so is the result; to the last bit, for
  // dropout's factor is a power of two.
  auto noise = [](const at::Tensor& x) { return at::dropout(x * at::rand_like(x), 0.5, true); };
  at::manual_seed(3);
  for (int i = 0; i < kThreads * kSteps; ++i) noise(x);
  at::Tensor state_after_as_many_draws = generator_state();
  at::manual_seed(3);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int step = 0; step < kSteps; ++step) {
        at::Tensor y = apply_ac_policy_fn(noise, "recompute_all", x);
        at::Tensor gradient = torch::autograd::grad({y}, {x}, {at::ones({30})})[0];
        mismatches += !at::equal(gradient, y.detach());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(mismatches, 0);
  // The replays drew nothing from it.
  EXPECT_TRUE(same_bits(generator_state(), state_after_as_many_draws));
}

}  // namespace
}  // namespace ac2::test

// Ops that draw random numbers in their kernels and do not say so: they are replayed on the numbers that they drew, and
// the program's generators stay as they were.
#include <ATen/CPUGeneratorImpl.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/library.h>

#include <atomic>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "ac2/memory_budget.h"
#include "tests/support/regions.h"

namespace ac2::test {
namespace {

std::atomic<int> replayed_calls = 0;

at::Tensor noise(const at::Tensor& x) {
  replayed_calls += is_recomputing();
  return x * at::randn_like(x);
}

// Asks the default generator itself, past the dispatcher.
at::Tensor scaled_at_random(const at::Tensor& x) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  return x * static_cast<double>(at::check_generator<at::CPUGeneratorImpl>(generator)->random() % 1000);
}

// A whole number of rounds of the generator, after which it has as many numbers left as before.
at::Tensor rounds(const at::Tensor& x) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  uint64_t sum = 0;
  for (int i = 0; i < at::MERSENNE_STATE_N; ++i) {
    sum += at::check_generator<at::CPUGeneratorImpl>(generator)->random() % 7;
  }
  return x * static_cast<double>(sum);
}

at::Tensor dropped(const at::Tensor& x, double p) {
  return p > 0 ? x * at::rand_like(x).gt(p) : x.clone();
}

at::Tensor noise_from(const at::Tensor& x, std::optional<at::Generator> rng) {
  return x * at::rand(x.sizes(), rng);
}

at::Tensor noise_from_both(const at::Tensor& x, std::optional<at::Generator> rng) {
  return x * at::rand(x.sizes(), rng) + at::rand_like(x);
}

at::Tensor noise_from_two(const at::Tensor& x, std::optional<at::Generator> a, std::optional<at::Generator> b) {
  return x * at::rand(x.sizes(), a) + at::rand(x.sizes(), b);
}

at::Tensor& add_noise_(at::Tensor& x) {
  return x.add_(at::rand_like(x));
}

int failures_to_come = 0;

at::Tensor noise_that_fails(const at::Tensor& x) {
  at::Tensor result = noise(x);
  if (failures_to_come > 0) {
    --failures_to_come;
    TORCH_CHECK_WITH(OutOfMemoryError, false, "out of memory, as told");
  }
  return result;
}

TORCH_LIBRARY(ac2_draws_test, m) {
  m.def("noise_that_fails(Tensor x) -> Tensor", noise_that_fails);
  m.def("noise(Tensor x) -> Tensor", noise);
  m.def("scaled_at_random(Tensor x) -> Tensor", scaled_at_random);
  m.def("rounds(Tensor x) -> Tensor", rounds);
  m.def("dropped(Tensor x, float p) -> Tensor", dropped);
  m.def("noise_from(Tensor x, Generator? rng) -> Tensor", noise_from);
  m.def("noise_from_both(Tensor x, Generator? rng) -> Tensor", noise_from_both);
  m.def("noise_from_two(Tensor x, Generator? a, Generator? b) -> Tensor", noise_from_two);
  m.def("add_noise_(Tensor(a!) x) -> Tensor(a!)", add_noise_);
}

template <class Signature, class... Args>
at::Tensor call(const char* name, Args&&... args) {
  const at::AutoDispatchBelowAutograd as_a_kernel_of_a_library;
  return c10::Dispatcher::singleton()
      .findSchemaOrThrow((std::string("ac2_draws_test::") + name).c_str(), "")
      .typed<Signature>()
      .call(std::forward<Args>(args)...);
}

at::Tensor call_one(const char* name, const at::Tensor& x) {
  return call<at::Tensor(const at::Tensor&)>(name, x);
}

using MaybeGenerator = std::optional<at::Generator>;

at::Tensor call_with(const char* name, const at::Tensor& x, MaybeGenerator rng) {
  return call<at::Tensor(const at::Tensor&, MaybeGenerator)>(name, x, std::move(rng));
}

at::Tensor call_with_two(const at::Tensor& x, MaybeGenerator a, MaybeGenerator b) {
  return call<at::Tensor(const at::Tensor&, MaybeGenerator, MaybeGenerator)>("noise_from_two", x, std::move(a),
                                                                             std::move(b));
}

at::Generator generator(uint64_t seed) {
  return at::make_generator<at::CPUGeneratorImpl>(seed);
}

class UnseenDrawsTest : public CleanTest {
 protected:
  void SetUp() override {
    CleanTest::SetUp();
    replayed_calls = 0;
  }
};

TEST_F(UnseenDrawsTest, AnOpThatSaysNothingIsReplayedOnWhatItDrew) {
  for (const char* name : {"noise", "scaled_at_random", "rounds"}) {
    expect_same_gradients_and_replays(
        [name](const Tensors& in) {
          return Tensors{in[0] * call_one(name, in[1]), at::rand({2})};
        },
        {sample({40}), constant({40})}, 1);
  }
  EXPECT_EQ(replayed_calls, 1);
}

TEST_F(UnseenDrawsTest, EveryCallHasAStateOfItsOwn) {
  expect_same_gradients(
      [](const Tensors& in) {
        at::Tensor y = in[0];
        for (int i = 0; i < 4; ++i) {
          y = (y * call_one("noise", in[1])).sin() * at::dropout(in[1], 0.5, true) * call_one("noise", in[1]);
        }
        return Tensors{y};
      },
      {sample({40}), constant({40})});
}

TEST_F(UnseenDrawsTest, ACallThatDrawsNothingIsReplayedWhereAnotherDraws) {
  const auto call_dropped = [](const at::Tensor& x, double p) {
    return call<at::Tensor(const at::Tensor&, double)>("dropped", x, p);
  };
  expect_same_gradients_and_replays(
      [&](const Tensors& in) {
        return Tensors{in[0] * call_dropped(in[1], 0), in[0] * call_dropped(in[1], 0.5),
                       in[0] * call_dropped(in[1], 0)};
      },
      {sample({40}), constant({40})}, 3);
}

TEST_F(UnseenDrawsTest, FromAGeneratorThatItTakes) {
  std::vector<at::Tensor> states;
  expect_same_gradients_and_replays(
      [&](const Tensors& in) {
        at::Generator own = generator(7);
        const Tensors results{in[0] * call_with("noise_from", in[1], own),
                              in[0] * call_with("noise_from_both", in[1], own),
                              in[0] * call_with("noise_from_both", in[1], std::nullopt),
                              in[0] * call_with("noise_from_both", in[1], at::detail::getDefaultCPUGenerator()),
                              in[0] * call_with_two(in[1], own, own),
                              in[0] * call_with_two(in[1], own, generator(9))};
        states.push_back(own.get_state());
        return results;
      },
      {sample({40}), constant({40})}, 6);
  EXPECT_TRUE(same_bits(states.at(1), states.at(0)));
}

TEST_F(UnseenDrawsTest, AnOpThatWrites) {
  expect_same_gradients(
      [](const Tensors& in) {
        at::Tensor x = in[1].sin();
        call<at::Tensor&(at::Tensor&)>("add_noise_", x);
        return Tensors{in[0] * x};
      },
      {sample({40}), constant({40})});
}

TEST_F(UnseenDrawsTest, UnderEveryKindOfPolicyAndAfterATag) {
  at::Tensor x = sample({40}), c = constant({40});
  const auto step = [&](bool tags) {
    at::Tensor drawn = call_one("noise", c);
    if (tags) tag_with_policy(drawn, CheckpointPolicy::MUST_RECOMPUTE);
    return (x * drawn).sin();
  };
  at::manual_seed(1);
  const at::Tensor expected = gradient_of(step(false), x);
  const at::Tensor state = generator_state();
  const Policy asked = [](const OpContext&) { return CheckpointPolicy::PREFER_RECOMPUTE; };
  for (const Policy& policy :
       {Policy("recompute_all"), Policy("must_save_all"), saving({"ac2_draws_test::noise"}), asked}) {
    for (const ScopeOptions& options :
         {ScopeOptions{}, ScopeOptions{.memory_budget = 1 << 20}, ScopeOptions{.verify = true}}) {
      for (bool tags : {false, true}) {
        at::manual_seed(1);
        at::Tensor y;
        {
          PolicyScope scope(policy, options);
          y = step(tags);
        }
        EXPECT_TRUE(same_bits(gradient_of(y, x), expected));
        EXPECT_TRUE(same_bits(generator_state(), state));
      }
    }
  }
}

TEST_F(UnseenDrawsTest, AnOpThatRanOutOfMemoryIsTriedAgainOnTheSameNumbers) {
  at::Tensor x = sample({40}), c = constant({40});
  const auto step = [&] {
    at::Tensor y = sines(x, 3);  // of which the budget can drop something
    return (y * call_one("noise_that_fails", c)).cos();
  };
  at::manual_seed(1);
  const at::Tensor expected = gradient_of(step(), x);
  const at::Tensor state = generator_state();
  at::manual_seed(1);
  at::Tensor y;
  {
    PolicyScope scope("recompute_all", {.memory_budget = MemoryBudget::soft(1 << 20)});
    failures_to_come = 1;
    y = step();
  }
  EXPECT_EQ(failures_to_come, 0);
  EXPECT_TRUE(same_bits(gradient_of(y, x), expected));
  EXPECT_TRUE(same_bits(generator_state(), state));
}

}  // namespace
}  // namespace ac2::test

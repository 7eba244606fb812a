// States of generators: copies on the CPU, and what is known of one that counts while nobody may look at it.
#include "ac2/internal/libtorch/random_state.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>
#include <torch/library.h>

#include <functional>

#include "ac2/internal/operators/draw_watch.h"
#include "ac2/internal/operators/op_facts.h"

namespace ac2::internal {
namespace {

TEST(RandomStateTest, DrawsTheSameEachTimeWhateverTheGeneratorHasDrawnSince) {
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(5);
  at::rand({3}, generator);
  const RandomState before(generator);
  const at::Tensor expected = at::rand({7}, generator);
  at::rand({100}, generator);
  EXPECT_TRUE(before.defined());
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(at::equal(at::rand({7}, before.generator()), expected));
}

TEST(RandomStateTest, OneThatWasNeverSetIsUndefined) {
  EXPECT_FALSE(RandomState().defined());
}

// As LibTorch's for CUDA: seed and offset, which cannot be read while a graph is captured.
class Counting final : public c10::GeneratorImpl {
 public:
  explicit Counting(bool captured) : GeneratorImpl({c10::kCUDA, 0}, {}), captured_(captured) {}
  void set_current_seed(uint64_t) override {}
  void set_offset(uint64_t) override {}
  uint64_t get_offset() const override {
    check();
    return 8;
  }
  uint64_t current_seed() const override {
    check();
    return 3;
  }
  uint64_t seed() override { return 3; }
  void set_state(const c10::TensorImpl&) override {}
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override { return {}; }

 private:
  void check() const { TORCH_CHECK(!captured_, "during CUDA graph capture"); }
  Counting* clone_impl() const override {
    check();
    return new Counting(captured_);
  }

  bool captured_;
};

TEST(RandomStateTest, OfAGeneratorThatIsBeingCapturedNothingIsKnown) {
  EXPECT_TRUE(RandomState(at::make_generator<Counting>(false)).defined());
  EXPECT_FALSE(RandomState(at::make_generator<Counting>(true)).defined());
}

TEST(RandomStateTest, TellsWhetherSomethingWasDrawnSinceAndGivesTheStateBack) {
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(5);
  const auto draw_rounds = [&] { at::randint(9, {at::MERSENNE_STATE_N}, generator); };
  const auto draw_normal = [&] { at::randn({1}, generator); };
  at::rand({3}, generator);
  for (const std::function<void()>& draw : {std::function<void()>(draw_rounds), std::function<void()>(draw_normal)}) {
    const RandomState before(generator);
    EXPECT_TRUE(before.is_of(generator));
    draw();
    EXPECT_FALSE(before.is_of(generator));
    before.give_back(generator);
    EXPECT_TRUE(before.is_of(generator));
  }
}

c10::OperatorHandle op_that_takes_a_generator() {
  static torch::Library library(torch::Library::DEF, "ac2_random_state_test", std::nullopt, __FILE__, __LINE__);
  static const bool defined = [] {
    library.def("draws(Generator? rng) -> ()");
    return true;
  }();
  (void)defined;
  return c10::Dispatcher::singleton().findSchemaOrThrow("ac2_random_state_test::draws", "");
}

TEST(DrawWatchTest, SeesWhatAnOpDrawsFromAndPutsItBack) {
  at::Generator own = at::make_generator<at::CPUGeneratorImpl>(5);
  const c10::IValue argument = own;
  RecentStates recent;
  const DrawWatch watch(op_facts(op_that_takes_a_generator()), argument, recent);
  EXPECT_FALSE(watch.draws().has_value());
  at::rand({3}, own);
  ASSERT_TRUE(watch.draws().has_value());
  ASSERT_EQ(watch.draws()->size(), 1U);
  EXPECT_EQ(watch.draws()->front().argument, 0);
  at::rand({3});
  EXPECT_EQ(watch.draws()->size(), 2U);
  watch.put_back();
  EXPECT_FALSE(watch.draws().has_value());
}

TEST(DrawWatchTest, WhileAGraphIsCapturedAnOpDrawsThatDidBefore) {
  const OpFacts facts(op_that_takes_a_generator());
  RecentStates recent;
  const c10::IValue captured = at::make_generator<Counting>(true);
  EXPECT_FALSE(DrawWatch(facts, captured, recent).draws().has_value());
  {
    const DrawWatch watch(facts, c10::IValue(), recent);
    at::rand({3});
    EXPECT_TRUE(watch.draws().has_value());
  }
  const DrawWatch watch(facts, captured, recent);
  ASSERT_TRUE(watch.draws().has_value());
  EXPECT_TRUE(watch.draws()->empty());
}

}  // namespace
}  // namespace ac2::internal

// States of generators: copies on the CPU, and what is known of one that counts while nobody may look at it.
#include "ac2/internal/libtorch/random_state.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/rand.h>
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace ac2::internal

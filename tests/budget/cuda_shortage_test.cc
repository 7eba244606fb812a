// whatever_fits() where memory is given out as CUDA's caching allocator does: in segments, of which ac2 is told before
// each is taken, without its size, and which pieces that were dropped need not fill.
#include <torch/torch.h>

#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>
#if __has_include(<c10/core/AllocatorConfig.h>)
#include <c10/core/AllocatorConfig.h>
#include <c10/util/ScopeExit.h>
#endif

#include "ac2/internal/budget/whatever_fits.h"
#include "ac2/internal/eviction/step_store.h"
#include "ac2/internal/libtorch/torch_compat.h"
#include "ac2/memory_budget.h"
#include "ac2/scope.h"
#include "tests/support/fake_cuda_memory.h"
#include "tests/support/offload_fixture.h"
#include "tests/support/training_step.h"
#include "tests/support/wait_for_engine.h"
#include "tests/support/warnings.h"

namespace ac2::test {
namespace {

// A byte of the fake accelerator counts as so many.
constexpr int64_t kScale = 2048;
constexpr int kSteps = 14;

using Around = std::function<void(const std::function<void()>& forward)>;

// Blocks as those of a Transformer, without attention, and a head whose logits are far larger than all else.
class Gpt {
 public:
  Gpt(c10::Device device, bool head_in_region) : head_in_region_(head_in_region) {
    input_ = TrainingStep::by_formula({kBatch, kDim}, 1).to(device);
    target_ = (at::arange(kBatch) * 7 % kWords).to(device);
    const auto add = [&](const at::Tensor& parameter) {
      parameters_.push_back(parameter.to(device).detach().requires_grad_());
    };
    for (int64_t i = 0; i < kLayers; ++i) {
      const auto seed = static_cast<double>(4 * i);
      add(TrainingStep::by_formula({4 * kDim, kDim}, seed + 2).div_(6));
      add(TrainingStep::by_formula({kDim, 4 * kDim}, seed + 3).div_(9));
    }
    add(TrainingStep::by_formula({kWords, kDim}, 5).div_(9));
    optimizer_ = std::make_unique<torch::optim::Adam>(parameters_, torch::optim::AdamOptions(1e-3));
  }

  void run(const Around& around) {
    optimizer_->zero_grad();
    at::Tensor x, loss;
    around([&] {
      x = body();
      if (head_in_region_) loss = head(x);
    });
    if (!head_in_region_) loss = head(x);
    x = at::Tensor();
    loss.backward();
    loss_ = loss.detach();
    loss = at::Tensor();
    optimizer_->step();
  }
  std::vector<at::Tensor> state() const {
    std::vector<at::Tensor> state = {loss_.cpu()};
    for (const at::Tensor& parameter : parameters_) state.push_back(parameter.detach().cpu());
    return state;
  }

 private:
  static constexpr int64_t kLayers = 12, kBatch = 256, kDim = 32, kWords = 1000;

  at::Tensor body() const {
    at::Tensor x = input_;
    for (int64_t i = 0; i < kLayers; ++i) {
      const at::Tensor normed = at::layer_norm(x, {kDim});
      const at::Tensor y = at::gelu(at::linear(normed, parameters_[2 * i]));
      x = x + at::linear(y, parameters_[2 * i + 1]);
    }
    return x;
  }
  at::Tensor head(const at::Tensor& x) const {
    return at::nll_loss(at::log_softmax(at::linear(x, parameters_.back()), 1), target_);
  }

  bool head_in_region_;
  at::Tensor input_, target_;
  std::vector<at::Tensor> parameters_;
  std::unique_ptr<torch::optim::Adam> optimizer_;
  at::Tensor loss_;
};

class CudaShortageTest : public OffloadTest {
 protected:
  void SetUp() override {
    OffloadTest::SetUp();
    whatever_fits();
    budget().start_limit_anew();
    internal::StepStore::process().forget_all();
  }
  static internal::Budget& budget() { return *internal::whatever_fits_budget(internal::CostSource::kMeasured); }
  static std::shared_ptr<const Trace> step_of(Gpt& gpt) {
    std::shared_ptr<const Trace> trace;
    gpt.run([&](const std::function<void()>& forward) {
      const PolicyScope scope({.memory_budget = whatever_fits()});
      trace = scope.trace();
      forward();
    });
    return trace;
  }

  // The ops that the last step has computed again, with so much of the memory that plain training reserves.
  int64_t replays_with(double share, bool head_in_region) {
    Tensors expected;
    int64_t reserved = 0;
    {
      const FakeCudaMemory memory({.limit = int64_t{1} << 50, .scale = kScale});
      Gpt gpt(fake_.device(), head_in_region);
      for (int i = 0; i < kSteps; ++i) gpt.run([](const std::function<void()>& forward) { forward(); });
      expected = gpt.state();
      reserved = memory.allocator().reserved().peak;
    }
    const FakeCudaMemory memory(
        {.limit = static_cast<int64_t>(share * static_cast<double>(reserved)), .scale = kScale});
    Gpt gpt(fake_.device(), head_in_region);
    int64_t replays = 0;
    for (int i = 0; i < kSteps; ++i) {
      const int64_t drops = budget().hurried_drops();
      replays = step_of(gpt)->stats().recomputed_ops;
      std::cout << "share " << share << ", step " << i << ": " << budget().hurried_drops() - drops << " shortages, "
                << replays << " replays\n";
    }
    expect_same_bits(gpt.state(), expected, "state");
    return replays;
  }
};

// A step has some 60 ops. In a region around each block of which nothing but the input is saved, all of them are
// replayed.
TEST_F(CudaShortageTest, AStepWhoseHeadIsInTheRegionIsDoneWithLittleToComputeAgain) {
  EXPECT_LT(replays_with(0.9, /*head_in_region=*/true), 40);
  budget().start_limit_anew();
  EXPECT_LT(replays_with(0.7, /*head_in_region=*/true), 60);
}

// The logits are allocated where no op is tried again, and nobody tells their size.
TEST_F(CudaShortageTest, AStepWhoseHeadIsOutsideOfTheRegionIsDoneToo) {
  EXPECT_LT(replays_with(0.9, /*head_in_region=*/false), 40);
  budget().start_limit_anew();
  EXPECT_LT(replays_with(0.7, /*head_in_region=*/false), 60);
}

TEST_F(CudaShortageTest, NothingIsDroppedWhereThereIsRoom) {
  const FakeCudaMemory memory({.limit = int64_t{1} << 50, .scale = kScale});
  Gpt gpt(fake_.device(), /*head_in_region=*/true);
  const int64_t drops = budget().hurried_drops();
  for (int i = 0; i < 4; ++i) EXPECT_EQ(step_of(gpt)->stats().recomputed_ops, 0);
  EXPECT_EQ(budget().hurried_drops(), drops);
}

#if __has_include(<c10/core/AllocatorConfig.h>)
// Segments that grow stay mapped, because mapping their pages anew costs a part of each step. Other segments are given
// back, so that the next step can cut them in another way.
TEST_F(CudaShortageTest, IdleMemoryIsGivenBackAfterAShortageUnlessSegmentsGrow) {
  const std::string setting_before =
      internal::has_expandable_segments() ? "expandable_segments:True" : "expandable_segments:False";
  const auto restore = c10::make_scope_exit([&] { c10::CachingAllocator::setAllocatorSettings(setting_before); });
  const auto emptied_with = [&](const char* setting) {
    c10::CachingAllocator::setAllocatorSettings(setting);
    budget().start_limit_anew();
    const FakeCudaMemory memory({.limit = int64_t{13} << 30, .scale = kScale});
    Gpt gpt(fake_.device(), /*head_in_region=*/true);
    const int64_t drops = budget().hurried_drops();
    for (int i = 0; i < 3; ++i) step_of(gpt);
    EXPECT_GT(budget().hurried_drops(), drops);
    return memory.emptied();
  };
  const int64_t growing = emptied_with("expandable_segments:True");
  EXPECT_GT(emptied_with("expandable_segments:False"), 0);
  EXPECT_EQ(growing, 0);
}
#endif

int64_t reserved_by(const FakeCudaMemory& memory) {
  return memory.allocator().reserved().peak / kScale;
}

TEST_F(CudaShortageTest, APeakIsTheMostThatTheAllocatorReserves) {
  Tensors expected;
  int64_t reserved = 0;
  {
    const FakeCudaMemory memory({.limit = int64_t{40} << 30, .scale = kScale});
    Gpt gpt(fake_.device(), /*head_in_region=*/true);
    for (int i = 0; i < kSteps; ++i) gpt.run([](const std::function<void()>& forward) { forward(); });
    expected = gpt.state();
    reserved = reserved_by(memory);
  }
  const FakeCudaMemory memory({.limit = int64_t{40} << 30, .scale = kScale});
  Gpt gpt(fake_.device(), /*head_in_region=*/true);
  int64_t replays = 0;
  {
    const MemoryBudget peak = MemoryBudget::peak(reserved * 7 / 10);
    const Warnings warnings;
    for (int i = 0; i < kSteps; ++i) {
      gpt.run([&](const std::function<void()>& forward) {
        const PolicyScope scope({.memory_budget = peak});
        forward();
        replays = scope.trace()->stats().evicted_values;
      });
    }
    EXPECT_EQ(warnings.messages, std::vector<std::string>());
    EXPECT_LE(reserved_by(memory), reserved * 7 / 10);
    EXPECT_LT(memory.fraction(), 1);
  }
  EXPECT_GT(replays, 0);
  expect_same_bits(gpt.state(), expected, "state");
  wait_for_engine(fake_.device());
  EXPECT_EQ(memory.fraction(), 1);
}

TEST_F(CudaShortageTest, OfSeveralPeaksTheSmallestLimitsTheAllocatorAndNoneMoreThanTheProgramDid) {
  FakeCudaMemory memory({.limit = int64_t{1} << 40, .scale = kScale});
  const int64_t total = (int64_t{1} << 40) / kScale;
  const at::Tensor x = leaf(sample({16}));
  const auto compute_under = [&](const MemoryBudget& budget) {
    const PolicyScope scope({.memory_budget = budget});
    x.sin();
  };
  memory.set_fraction(0.75);
  std::optional<MemoryBudget> large = MemoryBudget::peak(total / 2), small = MemoryBudget::peak(total / 4);
  compute_under(*large);
  EXPECT_EQ(memory.fraction(), 0.5);
  compute_under(*small);
  EXPECT_EQ(memory.fraction(), 0.25);
  small.reset();
  EXPECT_EQ(memory.fraction(), 0.5);
  compute_under(MemoryBudget::peak(2 * total));
  EXPECT_EQ(memory.fraction(), 0.5);
  large.reset();
  EXPECT_EQ(memory.fraction(), 0.75);
  // The program's own, meanwhile, stays.
  large = MemoryBudget::peak(total / 2);
  compute_under(*large);
  memory.set_fraction(0.375);
  large.reset();
  EXPECT_EQ(memory.fraction(), 0.375);
}

// As while another program had the rest, or where one step was far larger.
TEST_F(CudaShortageTest, AShortageThatIsOverIsForgotten) {
  FakeCudaMemory memory({.limit = int64_t{13} << 30, .scale = kScale});
  Gpt gpt(fake_.device(), /*head_in_region=*/true);
  for (int i = 0; i < 5; ++i) step_of(gpt);
  EXPECT_GT(step_of(gpt)->stats().recomputed_ops, 0);
  memory.set_limit(int64_t{40} << 30);
  int64_t replays = 0;
  for (int i = 0; i < 12; ++i) replays = step_of(gpt)->stats().recomputed_ops;
  EXPECT_EQ(replays, 0);
}

}  // namespace
}  // namespace ac2::test

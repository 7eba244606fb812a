// A Sequential in segments: the same bits, and of every segment but the last only its input is kept.
#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "ac2/ac2.h"
#include "ac2/testing/counting_allocator.h"
#include "tests/support/modules.h"

namespace ac2::test {
namespace {

using testing::CountingAllocator;
using torch::nn::Sequential;

class CheckpointSequentialTest : public CleanTest {
 protected:
  void SetUp() override {
    CountingAllocator::install();
    CleanTest::SetUp();
  }
};

constexpr int64_t kBytes = 8 * 16 * sizeof(float);  // of one result

// x -> cos(sin(x)): two results that plain autograd keeps, its input and sin(x).
struct WaveImpl : torch::nn::Module {
  at::Tensor forward(at::Tensor x) {
    if (fails) throw std::runtime_error("wave failed");
    regions.push_back(is_checkpoint_enabled());
    return x.sin().cos();
  }
  bool fails = false;
  std::vector<bool> regions;
};
TORCH_MODULE(Wave);

Sequential waves(int64_t count) {
  Sequential result;
  for (int64_t i = 0; i < count; ++i) result->push_back(Wave());
  return result;
}

// The bytes that are held when forward is done, besides the input and the result.
template <class Forward>
int64_t held_bytes(const Forward& forward, const at::Tensor& x) {
  auto& memory = CountingAllocator::install();
  const int64_t before = memory.current_bytes();
  at::Tensor y = forward(x);
  return memory.current_bytes() - before - static_cast<int64_t>(y.nbytes());
}

Sequential varied() {
  return Sequential(torch::nn::Conv2d(3, 4, 3), torch::nn::BatchNorm2d(4),
                    torch::nn::ReLU(torch::nn::ReLUOptions(true)), torch::nn::Dropout(0.25), torch::nn::Flatten(),
                    torch::nn::Linear(64, 8), torch::nn::LayerNorm(torch::nn::LayerNormOptions({8})), torch::nn::GELU(),
                    torch::nn::Linear(8, 3));
}

TEST_F(CheckpointSequentialTest, TrainsTheSameInAnyNumberOfSegments) {
  const Tensors inputs = {sample({2, 3, 6, 6})};
  const Training plain = train<Sequential>(
      varied, [](Sequential& m, const Tensors& in) { return Tensors{m->forward(in[0])}; }, inputs, nullptr, nullptr);
  for (int64_t segments = 0; segments <= 9; ++segments) {
    const Training actual = train<Sequential>(
        varied,
        [&](Sequential& m, const Tensors& in) {
          return Tensors{segments == 0 ? checkpoint_sequential(m, in[0]) : checkpoint_sequential(m, segments, in[0])};
        },
        inputs, nullptr, nullptr);
    expect_same_bits(actual.outputs, plain.outputs, "output");
    expect_same_bits(actual.parameter_gradients, plain.parameter_gradients, "parameter gradient");
    expect_same_bits(actual.input_gradients, plain.input_gradients, "input gradient");
    expect_same_bits(actual.buffers_after_backward, plain.buffers_after_backward, "buffer");
    EXPECT_TRUE(same_bits(actual.generator, plain.generator));
    expect_nothing_left();
  }
}

TEST_F(CheckpointSequentialTest, KeepsTheInputsOfAllSegmentsButTheLast) {
  const at::Tensor x = sample({8, 16});
  const Sequential model = waves(10);
  // Plain: two results a module; the first's input is x, the last one's result is not kept.
  EXPECT_EQ(held_bytes([&](const at::Tensor& in) { return Sequential(model)->forward(in); }, x), 19 * kBytes);
  // s segments: the last one's 2n results, its input among them, and the inputs of those before it but x.
  for (const auto& [segments, last] :
       std::vector<std::pair<int64_t, int64_t>>{{1, 10}, {2, 5}, {3, 4}, {4, 4}, {10, 1}}) {
    const int64_t own = segments == 1 ? 1 : 0;  // its input is x
    EXPECT_EQ(held_bytes([&](const at::Tensor& in) { return checkpoint_sequential(model, segments, in); }, x),
              (segments == 1 ? 2 * last - own : segments - 2 + 2 * last) * kBytes)
        << segments << " segments";
  }
}

TEST_F(CheckpointSequentialTest, ReplaysOnlyWhatSegmentsDropped) {
  const at::Tensor x = sample({8, 16});
  const Sequential model = waves(6);
  int64_t ops = 0;
  at::Tensor y = checkpoint_sequential(model, 3, x, [&](const OpContext&) {
    ++ops;
    return CheckpointPolicy::PREFER_RECOMPUTE;
  });
  EXPECT_EQ(ops, 8);                // two segments of two modules of two ops
  EXPECT_EQ(live_node_count(), 6);  // the last cos of each segment is needed by nobody
  EXPECT_TRUE(same_bits(gradient_of(y, x), gradient_of(Sequential(model)->forward(x), x)));
}

TEST_F(CheckpointSequentialTest, TheLastSegmentRunsPlain) {
  Sequential model = waves(5);
  checkpoint_sequential(model, 2, sample({8, 16}));
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(model->at<WaveImpl>(i).regions, std::vector<bool>{i < 2}) << i;
}

TEST_F(CheckpointSequentialTest, ChoosesTheNumberOfSegments) {
  EXPECT_EQ(sqrt_segments(1), 1);
  EXPECT_EQ(sqrt_segments(2), 2);
  EXPECT_EQ(sqrt_segments(3), 2);
  EXPECT_EQ(sqrt_segments(4), 2);
  EXPECT_EQ(sqrt_segments(9), 3);
  EXPECT_EQ(sqrt_segments(11), 3);
  EXPECT_EQ(sqrt_segments(15), 3);  // 4 would leave 6 modules to the last segment
  EXPECT_EQ(sqrt_segments(16), 4);
  EXPECT_EQ(sqrt_segments(100), 10);
  expect_error([] { sqrt_segments(0); }, {"sqrt_segments was asked to divide 0 modules"});
  const at::Tensor x = sample({8, 16});
  const Sequential model = waves(11);
  EXPECT_EQ(held_bytes([&](const at::Tensor& in) { return checkpoint_sequential(model, in); }, x),
            held_bytes([&](const at::Tensor& in) { return checkpoint_sequential(model, 3, in); }, x));
  Sequential counted = waves(9);
  checkpoint_sequential(counted, x);
  for (size_t i = 0; i < 9; ++i) EXPECT_EQ(counted->at<WaveImpl>(i).regions[0], i < 6) << i;
}

TEST_F(CheckpointSequentialTest, PassesWhatIsNoTensorBetweenModules) {
  struct FirstImpl : torch::nn::Module {
    at::Tensor forward(std::tuple<at::Tensor, std::tuple<at::Tensor, at::Tensor>> x) { return std::get<0>(x); }
  };
  Sequential model(torch::nn::LSTM(4, 5), FirstImpl(), torch::nn::Linear(5, 2));
  const at::Tensor x = sample({3, 2, 4});
  for (int64_t segments = 1; segments <= 3; ++segments) {
    at::Tensor y = checkpoint_sequential(model, segments, x);
    EXPECT_TRUE(same_bits(gradient_of(y, x), gradient_of(model->forward(x), x)));
  }
  Sequential tuple(torch::nn::LSTM(4, 5));
  expect_error([&] { checkpoint_sequential(tuple, 1, x); }, {"returns a tensor", "tuple"});
}

TEST_F(CheckpointSequentialTest, RefusesWhatItCannotDivide) {
  const at::Tensor x = sample({8, 16});
  expect_error([&] { checkpoint_sequential(waves(3), 0, x); }, {"0 segments of 3 modules", "1 to 3"});
  expect_error([&] { checkpoint_sequential(waves(3), -1, x); }, {"-1 segments of 3 modules"});
  expect_error([&] { checkpoint_sequential(waves(3), 4, x); }, {"4 segments of 3 modules"});
  expect_error([&] { checkpoint_sequential(Sequential(), 1, x); }, {"a Sequential without modules"});
  expect_error([&] { checkpoint_sequential(Sequential(), x); }, {"a Sequential without modules"});
  expect_error([&] { checkpoint_sequential(Sequential(nullptr), 1, x); }, {"a Sequential without modules"});
  expect_error([&] { checkpoint_sequential(waves(3), 2, at::Tensor()); }, {"undefined input"});
}

TEST_F(CheckpointSequentialTest, WorksWithoutGradientsAndInEvaluation) {
  Sequential model = varied();
  const at::Tensor x = constant({2, 3, 6, 6});
  model->eval();
  torch::NoGradGuard no_grad;
  EXPECT_TRUE(same_bits(checkpoint_sequential(model, 3, x), model->forward(x)));
}

TEST_F(CheckpointSequentialTest, AnExceptionLeavesTheThreadClean) {
  Sequential model = waves(4);
  model->at<WaveImpl>(1).fails = true;
  EXPECT_THROW(checkpoint_sequential(model, 2, sample({8, 16})), std::runtime_error);
  expect_next_region_works();
}

TEST_F(CheckpointSequentialTest, IsReachedByBothNames) {
  const at::Tensor x = sample({8, 16});
  EXPECT_TRUE(same_bits(ac2::checkpoint_sequential(waves(4), 2, x), ac2::checkpoint_sequential(waves(4), 2, x)));
}

}  // namespace
}  // namespace ac2::test

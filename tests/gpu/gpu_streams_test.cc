// Streams, devices, memory and graphs: what is only there on a GPU.
#include <ATen/Context.h>
#include <ATen/DeviceAccelerator.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/autograd.h>

#include <array>
#include <memory>
#include <optional>

#include "tests/gpu/capture.h"
#include "tests/gpu/gpu.h"
#include "tests/support/side_stream.h"

namespace ac2::test {
namespace {

using GpuStreamsTest = GpuTest;

constexpr int64_t kSide = 1024;

c10::Stream new_stream() {
  return c10::impl::VirtualGuardImpl(at::kCUDA).getStreamFromGlobalPool(
      c10::Device(at::kCUDA, at::accelerator::getDeviceIndex()));
}

template <class Fn>
at::Tensor on_stream(const c10::Stream& stream, const at::Tensor& x, Fn&& fn) {
  return on_side_stream(stream, {x}, [&] { return fn(x); });
}

// Slow enough that whoever does not wait reads what is not there yet.
at::Tensor slow(const at::Tensor& x) {
  at::Tensor y = x.sin();
  for (int i = 0; i < 8; ++i) y = y.mm(x).tanh();
  return y;
}

TEST_F(GpuStreamsTest, ForwardOnAnotherStreamThanBackward) {
  const c10::Stream side = new_stream();
  for (int i = 0; i < 5; ++i) {
    expect_same_gradients([&](const Tensors& in) { return Tensors{on_stream(side, in[0], slow).cos()}; },
                          {gpu_sample({kSide, kSide})});
  }
}

TEST_F(GpuStreamsTest, AValueReplayedOnOneStreamIsThereWhenAnotherUsesIt) {
  const std::array<c10::Stream, 2> sides = {new_stream(), new_stream()};
  for (int i = 0; i < 10; ++i) {
    expect_same_gradients(
        [&](const Tensors& in) {
          const at::Tensor y = slow(in[0]);
          const at::Tensor a = on_stream(sides[0], y, [](const at::Tensor& t) { return t.cos() * t; });
          const at::Tensor b = on_stream(sides[1], y, [](const at::Tensor& t) { return t.exp() * t.sin(); });
          return Tensors{a.mm(b)};
        },
        {gpu_sample({kSide, kSide})});
  }
}

TEST_F(GpuStreamsTest, AWriteIsReplayedAfterWhatReadsTheOldBytesElsewhere) {
  const c10::Stream side = new_stream();
  for (int i = 0; i < 10; ++i) {
    expect_same_gradients(
        [&](const Tensors& in) {
          // Plain autograd needs nothing of what is overwritten.
          at::Tensor y = slow(in[0]) + 0.5;
          const at::Tensor a = on_stream(side, y, [](const at::Tensor& t) { return (t * 3).cos(); });
          y.relu_();
          return Tensors{a * y.cos()};
        },
        {gpu_sample({kSide, kSide})});
  }
}

class TwoGpusTest : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (!IsSkipped() && at::accelerator::deviceCount() < 2) GTEST_SKIP() << "one GPU; this takes two";
  }
};

TEST_F(TwoGpusTest, ARegionMaySpanTwoDevices) {
  expect_same_gradients(
      [](const Tensors& in) {
        at::Tensor x = at::dropout(slow(in[0]), 0.3, true).to(c10::Device(at::kCUDA, 1));
        x = at::dropout(slow(x), 0.3, true) * at::rand({kSide, kSide}, at::kCUDA).to(x.device());
        return Tensors{x.to(c10::Device(at::kCUDA, 0)).cos()};
      },
      {gpu_sample({kSide, kSide})});
}

// The second device is current when rand runs, and need not be in backward.
TEST_F(TwoGpusTest, AFactoryWithoutAnIndexIsReplayedWhereItRan) {
  expect_same_gradients(
      [](const Tensors& in) {
        const c10::DeviceIndex before = at::accelerator::getDeviceIndex();
        at::accelerator::setDeviceIndex(1);
        const at::Tensor noise = at::rand({kSide}, at::kCUDA);
        at::accelerator::setDeviceIndex(before);
        return Tensors{in[0].to(noise.device()) * noise};
      },
      {gpu_sample({kSide})});
}

TEST_F(GpuStreamsTest, BytesHeldAreThoseRequested) {
  if (!tells_requested_bytes()) GTEST_SKIP() << "this LibTorch does not tell what is requested from an accelerator";
  constexpr int64_t kBytes = kSide * kSide * 4;
  constexpr int kOps = 10;
  const auto chain = [](at::Tensor x) {
    for (int i = 0; i < kOps; ++i) x = x.sin();
    return x;
  };
  const at::Tensor x = gpu_sample({kSide, kSide});
  const int64_t before = requested_bytes();
  {
    const at::Tensor y = chain(x);
    EXPECT_EQ(requested_bytes() - before, kOps * kBytes);
  }
  EXPECT_EQ(requested_bytes() - before, 0);
  at::Tensor y;
  std::shared_ptr<const Trace> trace;
  {
    PolicyScope scope("recompute_all");
    trace = scope.trace();
    y = chain(x);
  }
  EXPECT_EQ(requested_bytes() - before, kBytes);
  EXPECT_EQ(trace->stats().saved_bytes, kBytes);  // x
  gradient_of(y, x);
  EXPECT_EQ(requested_bytes() - before, kBytes);
}

TEST_F(GpuStreamsTest, AStepThatDoesNotFitIsDoneWithWhatThereIs) {
  constexpr int64_t kElements = int64_t{8} << 20;
  const auto chain = [](at::Tensor x) {
    for (int i = 0; i < 40; ++i) x = x.sin();
    return x;
  };
  const at::Tensor x = gpu_sample({kElements});
  const at::Tensor expected = gradient_of(chain(x), x);
  // All memory but that of 24 such tensors.
  constexpr size_t kRoom = 24;
  Tensors taken;
  EXPECT_THROW(
      while (true) { taken.push_back(at::empty({kElements}, at::TensorOptions(at::kCUDA))); }, c10::OutOfMemoryError);
  ASSERT_GT(taken.size(), kRoom);
  taken.resize(taken.size() - kRoom);
  std::shared_ptr<const Trace> trace;
  at::Tensor y;
  {
    PolicyScope scope({.memory_budget = int64_t{1} << 50});
    trace = scope.trace();
    y = chain(x);
  }
  EXPECT_TRUE(same_bits(gradient_of(y, x), expected));
  EXPECT_GT(trace->stats().evicted_values, 0);
}

// After the first steps the speed of copies is known, and it is decided by that; whatever it is, the bits are the same.
TEST_F(GpuStreamsTest, UnderABudgetValuesMayBeCopiedToTheHost) {
  constexpr int64_t kBytes = kSide * kSide * 4;
  const auto chain = [](at::Tensor x) {
    for (int i = 0; i < 24; ++i) x = x.mm(x.tanh()).tanh();
    return x;
  };
  const at::Tensor x = gpu_sample({kSide, kSide});
  const at::Tensor plain = gradient_of(chain(x), x);
  for (int i = 0; i < 5; ++i) {
    at::Tensor y;
    {
      const PolicyScope scope(
          {.memory_budget = MemoryBudget(20 * kBytes, /*modelled_costs=*/true), .forms = {forms::host_memory()}});
      y = chain(x);
    }
    EXPECT_TRUE(same_bits(gradient_of(y, x), plain));
  }
}

// While a graph is captured nobody can look at a generator's state: what draws is saved, and the rest recomputed.
TEST_F(GpuStreamsTest, AStepWithDropoutCanBeCaptured) {
  const at::Tensor x = gpu_constant({kSide}).abs_().add_(1).requires_grad_(true);
  at::Tensor y, gradient;
  at::Tensor before;
  capture_and_replay(
      [&] {
        {
          PolicyScope scope("recompute_all");
          y = at::dropout(x * 2, 0.5, true) * 3;
        }
        gradient = torch::autograd::grad({y.sum()}, {x})[0];
      },
      3,
      [&] {
        // 0 or 2 · 2 · 3, where the result is 0 or not; other masks each time.
        EXPECT_TRUE(at::equal(gradient != 0, y.detach() != 0));
        EXPECT_EQ(gradient.max().item<float>(), 12);
        if (before.defined()) {
          EXPECT_FALSE(at::equal(before, gradient));
        }
        before = gradient.clone();
      });
}

}  // namespace
}  // namespace ac2::test

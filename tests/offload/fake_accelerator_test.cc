// The fake accelerator itself: that it computes what the CPU does, and that every kind of wrong order shows.
#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <torch/csrc/autograd/autograd.h>

#include <string>
#include <vector>

#include "tests/support/fake_accelerator.h"
#include "tests/support/regions.h"
#include "tests/support/wait_for_engine.h"

namespace ac2::test {
namespace {

using Errors = std::vector<std::string>;

class FakeAcceleratorTest : public CleanTest {
 protected:
  void SetUp() override {
    CleanTest::SetUp();
    fake_.restart();
    const at::Tensor host = pinned({1});
    if (at::hasCUDA() && fake_.pinned_bytes() == 0) GTEST_SKIP() << "LibTorch pins memory for the GPU of this machine";
  }
  void TearDown() override {
    wait_for_engine(fake_.device());
    fake_.finish();
    EXPECT_EQ(fake_.take_errors(), Errors());
    EXPECT_EQ(fake_.live_events(), 0);
    EXPECT_EQ(fake_.device_bytes(), 0);
    EXPECT_EQ(fake_.pinned_bytes(), 0);
    CleanTest::TearDown();
  }

  at::Tensor on_device(at::IntArrayRef sizes) { return constant(sizes).to(fake_.device()); }
  static at::Tensor pinned(at::IntArrayRef sizes) { return at::empty(sizes, at::TensorOptions().pinned_memory(true)); }
  // An event that says that what is queued on `stream` so far has been done.
  static c10::Event after(c10::Stream stream) {
    c10::Event event(stream.device_type());
    event.record(stream);
    return event;
  }

  FakeAccelerator& fake_ = FakeAccelerator::install();
  const c10::Stream main_ = fake_.stream(0);
  const c10::Stream side_ = fake_.stream(1);
};

TEST_F(FakeAcceleratorTest, ComputesWhatTheCpuDoes) {
  const Tensors inputs = {sample({4, 6}), sample({8, 6}), sample({8}), sample({3, 8})};
  const auto run = [&](c10::Device device) {
    at::manual_seed(6);
    Tensors leaves;
    for (const at::Tensor& input : inputs) leaves.push_back(input.detach().to(device).clone().requires_grad_());
    at::Tensor x = at::linear(leaves[0].view({2, 2, 6}), leaves[1], leaves[2]);
    x = at::gelu(at::layer_norm(x, {8})).mul_(2);
    x = at::dropout(x, 0.25, /*train=*/true).relu().transpose(0, 1);
    x = at::matmul(x, leaves[3].t()).softmax(-1);
    Tensors results = {x};
    for (const at::Tensor& gradient : torch::autograd::grad({(x * x).sum()}, leaves)) results.push_back(gradient);
    for (at::Tensor& result : results) result = result.detach().cpu();
    return results;
  };
  const Tensors actual = run(fake_.device());
  const Tensors expected = run(at::kCPU);
  for (size_t i = 0; i < expected.size(); ++i) {
    // Not to the bit: some ops are made of others there.
    EXPECT_TRUE(at::allclose(actual[i], expected[i], /*rtol=*/1e-5, /*atol=*/1e-6)) << i;
  }
}

TEST_F(FakeAcceleratorTest, CopiesWithoutBlockingRunLate) {
  const at::Tensor x = on_device({8});
  const at::Tensor host = pinned({8});
  host.zero_();
  host.copy_(x, /*non_blocking=*/true);
  EXPECT_EQ(fake_.pending_copies(), 1);
  EXPECT_TRUE(host.eq(0).all().item<bool>());
  fake_.host_reads(host.data_ptr());
  EXPECT_EQ(fake_.take_errors(), Errors({"the host reads without waiting for a write on stream 0"}));
  const c10::Event copied = after(main_);
  EXPECT_FALSE(copied.query());
  const int64_t before = fake_.synchronisations();
  copied.synchronize();
  EXPECT_EQ(fake_.synchronisations(), before + 1);
  EXPECT_TRUE(same_bits(host, x.cpu()));
  fake_.host_reads(host.data_ptr());
}

TEST_F(FakeAcceleratorTest, AskingAnEventMakesProgressAsTheSeedSays) {
  const auto asked_until_done = [&](uint64_t seed) {
    fake_.restart(seed);
    const at::Tensor x = on_device({8});
    std::vector<at::Tensor> hosts;
    for (int i = 0; i < 4; ++i) {
      hosts.push_back(pinned({8}));
      hosts.back().copy_(x, true);
    }
    const c10::Event copied = after(main_);
    int times = 1;
    while (!copied.query()) ++times;
    EXPECT_EQ(fake_.pending_copies(), 0);
    return times;
  };
  EXPECT_EQ(asked_until_done(3), asked_until_done(3));
  EXPECT_GT(asked_until_done(3), 1);
}

TEST_F(FakeAcceleratorTest, FindsAUseBeforeTheCopyInIsDone) {
  const at::Tensor host = pinned({8});
  host.fill_(2);
  const at::Tensor x = on_device({8});
  const c10::Event made = after(main_);
  {
    const c10::StreamGuard guard(side_);
    made.block(side_);
    x.copy_(host, /*non_blocking=*/true);
  }
  const c10::Event copied = after(side_);
  const at::Tensor early = x + 1;
  EXPECT_FALSE(early.cpu().eq(3).all().item<bool>());
  const Errors errors = fake_.take_errors();
  ASSERT_FALSE(errors.empty());
  EXPECT_EQ(errors[0], "stream 0 reads without waiting for a write on stream 1");
  copied.block(main_);
  EXPECT_TRUE((x + 1).cpu().eq(3).all().item<bool>());
}

TEST_F(FakeAcceleratorTest, FindsMemoryThatIsFreedAndUsedAgainBeforeTheCopyOutIsDone) {
  const at::Tensor host = pinned({8});
  for (const bool wait : {false, true}) {
    at::Tensor x = on_device({8});
    const at::Tensor expected = x.cpu();
    const c10::Event made = after(main_);
    {
      const c10::StreamGuard guard(side_);
      made.block(side_);
      host.copy_(x, /*non_blocking=*/true);
    }
    const c10::Event copied = after(side_);
    const void* const address = x.data_ptr();
    if (wait) copied.block(main_);
    x = at::Tensor();
    x = at::empty({8}, at::device(fake_.device()));
    EXPECT_EQ(x.data_ptr(), address);
    x.fill_(7);
    copied.synchronize();
    EXPECT_EQ(same_bits(host, expected), wait);
    const Errors errors = fake_.take_errors();
    ASSERT_EQ(errors.empty(), wait);
    if (!wait) {
      EXPECT_EQ(errors[0], "memory of stream 0 was freed without waiting for a read on stream 1");
    }
  }
}

TEST_F(FakeAcceleratorTest, FindsAMissingWaitOnASideStream) {
  const at::Tensor host = pinned({8});
  const at::Tensor x = on_device({8}) * 2;  // by main_
  {
    const c10::StreamGuard guard(side_);
    host.copy_(x, /*non_blocking=*/true);
  }
  EXPECT_EQ(fake_.take_errors(), Errors({"stream 1 reads without waiting for a write on stream 0"}));
  after(side_).synchronize();
}

TEST_F(FakeAcceleratorTest, FindsAWriteWhileAnotherStreamReads) {
  const at::Tensor host = pinned({8});
  const at::Tensor x = on_device({8});
  const c10::Event made = after(main_);
  {
    const c10::StreamGuard guard(side_);
    made.block(side_);
    host.copy_(x, /*non_blocking=*/true);
  }
  const c10::Event copied = after(side_);
  x.fill_(1);
  const Errors errors = fake_.take_errors();
  ASSERT_FALSE(errors.empty());
  EXPECT_EQ(errors[0], "stream 0 writes without waiting for a read on stream 1");
  copied.block(main_);
  x.fill_(1);
  copied.synchronize();
}

TEST_F(FakeAcceleratorTest, FindsPinnedMemoryThatIsFreedTooEarly) {
  const at::Tensor x = on_device({8});
  at::Tensor host = pinned({8});
  host.copy_(x, /*non_blocking=*/true);
  host = at::Tensor();
  EXPECT_EQ(fake_.take_errors(), Errors({"pinned memory was freed without waiting for a write on stream 0"}));
}

TEST_F(FakeAcceleratorTest, MemoryRecordedOnAStreamIsNotUsedAgainBeforeThatStreamIsDone) {
  const at::Tensor host = pinned({8});
  at::Tensor x = on_device({8});
  const at::Tensor expected = x.cpu();
  const c10::Event made = after(main_);
  {
    const c10::StreamGuard guard(side_);
    made.block(side_);
    host.copy_(x, /*non_blocking=*/true);
  }
  x.record_stream(side_);
  const void* const address = x.data_ptr();
  x = at::Tensor();
  EXPECT_EQ(fake_.device_bytes(), 32);
  EXPECT_NE(on_device({8}).data_ptr(), address);
  after(side_).synchronize();
  EXPECT_EQ(on_device({8}).data_ptr(), address);
  EXPECT_TRUE(same_bits(host, expected));
}

TEST_F(FakeAcceleratorTest, CountsBytesAndSynchronisations) {
  const int64_t before = fake_.synchronisations();
  {
    const at::Tensor x = at::zeros({100}, at::device(fake_.device()));
    const at::Tensor y = x + 1;
    EXPECT_EQ(fake_.device_bytes(), 800);
    const at::Tensor host = pinned({100});
    EXPECT_EQ(fake_.pinned_bytes(), 400);
    EXPECT_EQ(fake_.synchronisations(), before);
    EXPECT_EQ(y.sum().item<float>(), 100);
    EXPECT_EQ(fake_.synchronisations(), before + 1);
  }
  EXPECT_EQ(fake_.device_bytes(), 0);
  EXPECT_GE(fake_.peak_device_bytes(), 800);
  fake_.limit_pinned(100);
  EXPECT_THROW(pinned({100}), c10::OutOfMemoryError);
}

}  // namespace
}  // namespace ac2::test

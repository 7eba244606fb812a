// Replay on several streams of one device, without a GPU: on the fake accelerator every access that nothing orders
// after what it depends on is an error, whatever order things happened to run in.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/support/offload_fixture.h"
#include "tests/support/side_stream.h"

namespace ac2::test {
namespace {

// Kernels in pack and in unpack.
SaveWithHooks copies() {
  return {[](const at::Tensor& t) { return c10::IValue(std::tuple(t.clone(), t.numel())); },
          [](const c10::IValue& packed) { return packed.toTupleRef().elements()[0].toTensor().clone(); }};
}

// Memory of pack's stream is what unpack returns.
SaveWithHooks one_copy() {
  return {[](const at::Tensor& t) { return c10::IValue(t.clone()); },
          [](const c10::IValue& packed) { return packed.toTensor(); }};
}

class ReplayStreamsTest : public OffloadTest {
 protected:
  using Fn = std::function<at::Tensor(const at::Tensor&)>;

  at::Tensor on_stream(int stream, const at::Tensor& x, const Fn& fn) {
    return on_side_stream(fake_.stream(stream), {x}, [&] { return fn(x); });
  }

  // Under every policy, in a device whose copies are done when they must be and in one where they are done at random.
  Stats expect_exact(const TensorFn& fn, const Tensors& inputs) {
    expect_same_as_plain(fn, inputs, CheckpointPolicy::MUST_CPU_OFFLOAD, all_sizes());
    expect_same_as_plain(fn, inputs, "must_save_all", {});
    expect_same_as_plain(fn, inputs, Policy::constant(copies()), {});
    expect_same_as_plain(fn, inputs, Policy::constant(one_copy()), {});
    const Stats stats = expect_same_as_plain(fn, inputs, "recompute_all", {});
    EXPECT_EQ(fake_.take_errors(), std::vector<std::string>());
    return stats;
  }
};

at::Tensor twice_sine(const at::Tensor& x) {
  return x.sin().sin();
}

TEST_F(ReplayStreamsTest, ForwardOnAnotherStreamThanWhatComesAfterIsExact) {
  const Stats stats =
      expect_exact([&](const Tensors& in) { return Tensors{on_stream(1, in[0], twice_sine).cos()}; }, {sample({4, 4})});
  EXPECT_EQ(stats.backward.recomputed_ops, 2);
}

TEST_F(ReplayStreamsTest, AValueReplayedOnOneStreamIsThereWhenAnotherUsesIt) {
  const Stats stats = expect_exact(
      [&](const Tensors& in) {
        const at::Tensor y = twice_sine(in[0]);
        const at::Tensor a = on_stream(1, y, [](const at::Tensor& t) { return t.cos() * t; });
        const at::Tensor b = on_stream(2, y, [](const at::Tensor& t) { return t.exp() * t.sin(); });
        return Tensors{a.mm(b)};
      },
      {sample({4, 4})});
  EXPECT_EQ(stats.backward.recomputed_ops, 7);  // each but the product of matrices
}

TEST_F(ReplayStreamsTest, WhatWasPackedOnOneStreamMayBeUnpackedOnAnother) {
  expect_exact(
      [&](const Tensors& in) {
        const at::Tensor y = in[0].sin();
        const at::Tensor first_to_want_it = y.cos();
        return Tensors{on_stream(1, y, [](const at::Tensor& t) { return t.cos(); })};
      },
      {sample({4, 4})});
}

TEST_F(ReplayStreamsTest, UsersOnManyStreamsStandInARowBeforeAWrite) {
  expect_exact(
      [&](const Tensors& in) {
        // Plain autograd needs nothing of what is overwritten; replay does.
        at::Tensor y = twice_sine(in[0]) + 0.5;
        const at::Tensor a = on_stream(1, y, [](const at::Tensor& t) { return t.cumsum(0).cos(); });
        const at::Tensor b = on_stream(2, y, [](const at::Tensor& t) { return (t * 2).exp(); });
        y.relu_();
        const at::Tensor c = on_stream(3, y, [](const at::Tensor& t) { return t.tanh() * t; });
        return Tensors{a * y.cos() + b * c};
      },
      {sample({4, 4})});
}

TEST_F(ReplayStreamsTest, AWriteOnAnotherStreamIsReplayedThere) {
  expect_exact(
      [&](const Tensors& in) {
        at::Tensor y = twice_sine(in[0]) + 0.5;
        const at::Tensor z = (y * 3).cos();
        on_stream(1, y, [](const at::Tensor& t) { return t.mul_(2); });
        return Tensors{z * y.sin() * y};
      },
      {sample({4, 4})});
}

TEST_F(ReplayStreamsTest, AChainThatChangesStreamsWithEachOpIsExact) {
  const Stats stats = expect_exact(
      [&](const Tensors& in) {
        at::Tensor x = in[0];
        for (int i = 0; i < 12; ++i) {
          x = on_stream(1 + i % 3, x, [](const at::Tensor& t) { return t.sin(); });
        }
        return Tensors{x};
      },
      {sample({8})});
  EXPECT_EQ(stats.backward.recomputed_ops, 11);
}

TEST_F(ReplayStreamsTest, DrawsAndWritesWithinOneRegionAreExact) {
  expect_exact(
      [&](const Tensors& in) {
        const at::Tensor y = on_stream(1, in[0], [](const at::Tensor& t) { return at::dropout(t.sin(), 0.3, true); });
        const at::Tensor z = on_stream(2, y, [](const at::Tensor& t) { return at::dropout(t.exp(), 0.3, true); });
        return Tensors{y * z, z};
      },
      {sample({6})});
}

// As the tests of tests/gpu/ compare, which count nodes right after a backward on the device's own thread.
TEST_F(ReplayStreamsTest, NothingIsLeftWhenABackwardOnADeviceHasReturned) {
  for (int i = 0; i < 50; ++i) {
    const Stats stats = expect_same_gradients(
        [&](const Tensors& in) {
          const at::Tensor y = twice_sine(in[0]) * in[1];
          return Tensors{on_stream(1, y, [](const at::Tensor& t) { return t.exp().tanh(); }), y.cos()};
        },
        {leaf(sample({6})), leaf(sample({6}))});
    EXPECT_EQ(stats.backward.recomputed_ops, 4);
  }
}

}  // namespace
}  // namespace ac2::test

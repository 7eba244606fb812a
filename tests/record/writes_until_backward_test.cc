// What a region has taken, and what the program writes to it between the region and its backward: gradients are those
// of plain autograd, which has saved results where ac2 computes them again.
#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/allocation_log.h"
#include "tests/support/plain_bits.h"
#include "tests/support/regions.h"
#include "tests/support/ways.h"

namespace ac2::test {
namespace {

class WritesUntilBackwardTest : public CleanTest {
 protected:
  // Before whatever_fits() puts its allocator in front, which nothing would refer to if another one took its place.
  static void SetUpTestSuite() { AllocationLog::install(); }
};

constexpr const char* kModified = "has been modified by an inplace operation";

// The same tensors in each run of a program.
struct Inputs {
  at::Tensor x = at::linspace(-1, 1, 12).view({3, 4}).requires_grad_();
  at::Tensor weight = at::linspace(0.2, 0.9, 4).requires_grad_();
  at::Tensor buffer = at::linspace(0.5, 2, 4);
};

// `write` is called after sin(x + buffer) was computed in a region, and before its backward.
void expect_plain_bits_after(const std::function<void(at::Tensor& buffer)>& write) {
  expect_plain_bits([&](const Region& region) {
    Inputs in;
    at::Tensor y;
    region([&] { y = (in.x + in.buffer).sin(); });
    write(in.buffer);
    return gradients_of({y}, {in.x});
  });
}

TEST_F(WritesUntilBackwardTest, AnInputThatOnlyAReplayTakesMayBeWrittenInPlace) {
  expect_plain_bits_after([](at::Tensor& b) { b.add_(1); });
  expect_plain_bits_after([](at::Tensor& b) { b.zero_(); });
  expect_plain_bits_after([](at::Tensor& b) { b.copy_(at::ones({4})); });
  expect_plain_bits_after([](at::Tensor& b) { b.lerp_(at::ones({4}), 0.25); });
  expect_plain_bits_after([](at::Tensor& b) { b.slice(0, 1, 3).mul_(3); });
  expect_plain_bits_after([](at::Tensor& b) { b.cumsum_(0); });  // boxed
  expect_plain_bits_after([](at::Tensor& b) { b.index_put_({at::ones({1}, at::kLong)}, at::zeros({1})); });
}

TEST_F(WritesUntilBackwardTest, AnInputMayBeWrittenByOutArguments) {
  expect_plain_bits_after([](at::Tensor& b) { at::add_out(b, at::ones({4}), at::ones({4})); });
  expect_plain_bits_after([](at::Tensor& b) {
    at::Tensor square = b.view({2, 2});
    at::mm_out(square, at::eye(2), at::eye(2));
  });
}

TEST_F(WritesUntilBackwardTest, AnInputMayBeWrittenByForeachAndFusedOps) {
  expect_plain_bits_after([](at::Tensor& b) { at::_foreach_mul_({at::ones({2}), b}, 3); });
  expect_plain_bits_after([](at::Tensor& b) { at::_foreach_copy_({b}, {at::ones({4})}); });
  expect_plain_bits_after([](at::Tensor& b) {
    std::vector<at::Tensor> none;
    at::_fused_sgd_({b}, {at::ones({4})}, none, /*weight_decay=*/0.1, /*momentum=*/0, /*lr=*/0.5, /*dampening=*/0,
                    /*nesterov=*/false, /*maximize=*/false, /*is_first_step=*/false);
  });
}

TEST_F(WritesUntilBackwardTest, AnInputMayBeWrittenThroughAnAliasWithAVersionCounterOfItsOwn) {
  expect_plain_bits_after([](at::Tensor& b) { b.variable_data().mul_(5); });
  expect_plain_bits_after([](at::Tensor& b) { b.detach().mul_(5); });
  expect_plain_bits_after([](at::Tensor& b) { at::empty({0}).set_(b.storage()).mul_(5); });
  expect_plain_bits_after([](at::Tensor& b) { at::unsafe_chunk(b, 2)[1].mul_(5); });
}

TEST_F(WritesUntilBackwardTest, AnInputMayBeWrittenInInferenceMode) {
  expect_plain_bits_after([](at::Tensor& b) {
    const c10::InferenceMode mode;
    b.mul_(5);
    b.detach().add_(1);
  });
}

TEST_F(WritesUntilBackwardTest, AnInputMayBeWrittenOnAnotherThread) {
  expect_plain_bits_after([](at::Tensor& b) { std::thread([&] { b.mul_(5); }).join(); });
  expect_plain_bits_after([](at::Tensor& b) { std::thread([&] { b.variable_data().mul_(5); }).join(); });
}

TEST_F(WritesUntilBackwardTest, AnInputMayBeGivenAnotherStorageAndBeWrittenToThere) {
  expect_plain_bits_after([](at::Tensor& b) {
    b.set_(at::ones({4}));
    b.add_(1);
  });
  expect_plain_bits_after([](at::Tensor& b) {
    b.set_data(at::ones({4}));
    b.add_(1);
  });
}

TEST_F(WritesUntilBackwardTest, AnInputMayBeWrittenInALaterRegion) {
  for (const Way& later : all_ways()) {
    expect_plain_bits_after([&](at::Tensor& b) {
      const PolicyScope scope(later.policy, later.options);
      b.mul_(5);
      b.variable_data().add_(1);
    });
  }
}

TEST_F(WritesUntilBackwardTest, AnInputMayBeWrittenWhileCheckpointingIsDisabled) {
  expect_plain_bits([](const Region& region) {
    Inputs in;
    at::Tensor y;
    region([&] {
      y = (in.x + in.buffer).sin();
      {
        const DisableCheckpointing disabled;
        in.buffer.mul_(5);
        in.buffer.variable_data().add_(1);
      }
      y = y * (in.x + in.buffer).cos();
    });
    return gradients_of({y}, {in.x});
  });
}

TEST_F(WritesUntilBackwardTest, AnInputMayBeWrittenByAThreadWhileTheRegionIsOpen) {
  expect_plain_bits([](const Region& region) {
    Inputs in;
    at::Tensor y;
    region([&] {
      y = (in.x + in.buffer).sin();
      std::thread([&] {
        in.buffer.mul_(5);
        in.buffer.variable_data().add_(1);
      }).join();
      y = y * (in.x + in.buffer).cos();
    });
    return gradients_of({y}, {in.x});
  });
}

TEST_F(WritesUntilBackwardTest, SeveralWritesInARowLeaveWhatTheFirstFound) {
  expect_plain_bits_after([](at::Tensor& b) {
    for (int i = 0; i < 3; ++i) {
      b.mul_(2);
      b.variable_data().sub_(1);
    }
  });
}

TEST_F(WritesUntilBackwardTest, RegionsThatTookOneBufferOneAfterTheOtherEachReadTheirOwnBytes) {
  // A step counter, statistics, a cache: written to by each forward, read by one backward.
  expect_plain_bits([](const Region& region) {
    Inputs in;
    at::Tensor sum = at::zeros({});
    for (int call = 0; call < 4; ++call) {
      region([&] {
        const at::Tensor normed = (in.x * in.weight - in.buffer.detach().clone()) / (in.buffer + 1).sqrt();
        sum = sum + normed.sin().sum();
        const at::NoGradGuard guard;
        in.buffer.lerp_(in.x.mean(0), 0.1);
      });
    }
    return gradients_of({sum}, {in.x, in.weight});
  });
}

TEST_F(WritesUntilBackwardTest, ATeacherMayMoveBeforeBackward) {
  expect_plain_bits([](const Region& region) {
    Inputs in;
    at::Tensor teacher = in.weight.detach().clone();
    at::Tensor loss;
    region([&] {
      at::Tensor target;
      {
        const at::NoGradGuard guard;
        target = (in.x * teacher).tanh();
      }
      loss = ((in.x * in.weight).tanh() - target).square().sum();
    });
    const at::NoGradGuard guard;
    teacher.lerp_(in.weight, 0.5);
    teacher.variable_data().mul_(0.9);
    return gradients_of({loss}, {in.x, in.weight});
  });
}

// The gate is computed from the weight without a gradient, and the weight moves in the backward that needs the gate.
class StepInBackward : public torch::autograd::Function<StepInBackward> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, at::Tensor weight) {
    context->saved_data["weight"] = std::move(weight);
    return x.clone();
  }
  static std::vector<at::Tensor> backward(torch::autograd::AutogradContext* context,
                                          const std::vector<at::Tensor>& gradients) {
    const at::NoGradGuard guard;
    context->saved_data["weight"].toTensor().sub_(0.25);
    return {gradients[0], at::Tensor()};
  }
};

TEST_F(WritesUntilBackwardTest, AWeightMayMoveInTheBackwardThatComputesFromIt) {
  expect_plain_bits([](const Region& region) {
    Inputs in;
    const at::Tensor moved = in.weight.detach();
    at::Tensor y;
    region([&] {
      const at::Tensor gate = moved.sigmoid();
      const at::Tensor h = (in.x * gate).sin();
      y = (h + moved.exp()).cos();
    });
    y = StepInBackward::apply(y, moved);
    Tensors gradients = gradients_of({y}, {in.x});
    gradients.push_back(moved.clone());
    return gradients;
  });
}

TEST_F(WritesUntilBackwardTest, ABufferMayBeRefilledBetweenTwoBackwardsOfOneGraph) {
  expect_plain_bits([](const Region& region) {
    Inputs in;
    at::Tensor y;
    region([&] { y = (in.x + in.buffer).sin(); });
    Tensors gradients = gradients_of({y}, {in.x}, /*retain_graph=*/true);
    in.buffer.mul_(2);
    gradients.push_back(gradient_of(y, in.x, /*retain_graph=*/true));
    in.buffer.variable_data().mul_(2);
    gradients.push_back(gradient_of(y, in.x));
    return gradients;
  });
}

TEST_F(WritesUntilBackwardTest, ARunningStatisticThatAnOpWritesUnseenIsReadAsItWas) {
  expect_plain_bits([](const Region& region) {
    Inputs in;
    at::Tensor y, mean = at::zeros({4}), variance = at::ones({4});
    region([&] { y = (in.x + mean).sin() * (in.x + variance).cos(); });
    at::batch_norm(in.x.detach(), {}, {}, mean, variance, /*training=*/true, 0.1, 1e-5, /*cudnn_enabled=*/false);
    return gradients_of({y}, {in.x});
  });
}

TEST_F(WritesUntilBackwardTest, TheInputIsCopiedOnceAndOnlyWhereItIsWritten) {
  const Inputs in;
  at::Tensor y;
  std::shared_ptr<const Trace> trace;
  {
    const PolicyScope scope("recompute_all");
    trace = scope.trace();
    y = (in.x + in.buffer).sin();
  }
  EXPECT_EQ(trace->stats().saved_bytes, storage_bytes(in.x) + storage_bytes(in.buffer));
  EXPECT_EQ(trace->stats().copied_bytes, 0);
  in.buffer.mul_(2);
  in.buffer.mul_(2);
  EXPECT_EQ(trace->stats().copied_bytes, storage_bytes(in.buffer));
  EXPECT_EQ(trace->stats().saved_bytes, storage_bytes(in.x) + storage_bytes(in.buffer));
  gradient_of(y, in.x);
  EXPECT_EQ(trace->stats().recomputed_ops, 1);
  EXPECT_EQ(trace->stats().saved_bytes, 0);
}

TEST_F(WritesUntilBackwardTest, NothingIsCopiedWhereNoReplayReadsIt) {
  Inputs in;
  at::Tensor y, z;
  std::shared_ptr<const Trace> trace;
  {
    const PolicyScope scope("must_save_all");
    trace = scope.trace();
    y = (in.x + in.buffer).sin();
    z = in.x * in.buffer;
  }
  in.buffer.mul_(2);
  EXPECT_EQ(trace->stats().copied_bytes, 0);
  gradient_of(y, in.x);
}

TEST_F(WritesUntilBackwardTest, NothingIsCopiedOnceBackwardIsOver) {
  Inputs in;
  at::Tensor y;
  std::shared_ptr<const Trace> trace;
  {
    const PolicyScope scope("recompute_all");
    trace = scope.trace();
    y = (in.x + in.buffer).sin();
  }
  gradient_of(y, in.x);
  in.buffer.mul_(2);
  EXPECT_EQ(trace->stats().copied_bytes, 0);
}

TEST_F(WritesUntilBackwardTest, WhatAutogradItselfHasSavedIsAnErrorAsInPlainAutograd) {
  const auto write_and_run = [](const Region& region) {
    Inputs in;
    at::Tensor y;
    region([&] { y = (in.x * in.buffer + in.buffer).sin(); });
    in.buffer.mul_(5);
    return gradients_of({y}, {in.x});
  };
  expect_error([&] { write_and_run([](const Forward& forward) { forward(); }); }, {kModified});
  for (const Way& way : all_ways()) {
    const auto region = [&](const Forward& forward) {
      const PolicyScope scope(way.policy, way.options);
      forward();
    };
    expect_error([&] { write_and_run(region); }, {kModified});
  }
}

TEST_F(WritesUntilBackwardTest, TheErrorNamesTheOpThatWroteTheNodeThatReadsAndTheLayout) {
  Inputs in;
  at::Tensor y;
  {
    const PolicyScope scope("recompute_all");
    y = (in.x * in.buffer).sin();
  }
  in.buffer.mul_(5);
  expect_error([&] { gradient_of(y, in.x); },
               {kModified, "The op that wrote to it last is aten::mul_",
                "MulBackward0 reads it, a tensor of sizes [4] and dtype Float", "Write to a clone() of it"});
  in = Inputs();
  {
    const PolicyScope scope("recompute_all");
    y = (in.x * in.buffer).sin();
  }
  in.buffer.cumsum_(0);  // whose kernel is not typed
  expect_error([&] { gradient_of(y, in.x); }, {kModified, "The op that wrote to it last is aten::cumsum_"});
}

TEST_F(WritesUntilBackwardTest, WhatAutogradItselfHasSavedIsReadAsPlainAutogradReadsItThroughData) {
  expect_plain_bits([](const Region& region) {
    Inputs in;
    at::Tensor y;
    region([&] { y = in.x * in.buffer + (in.x + in.buffer).sin(); });
    in.buffer.variable_data().mul_(5);
    return gradients_of({y}, {in.x});
  });
}

// A policy that packs has taken the bytes of forward.
TEST_F(WritesUntilBackwardTest, AResultThatAutogradHasSavedIsReadAsPlainAutogradReadsItThroughData) {
  const Program program = [](const Region& region) {
    Inputs in;
    at::Tensor h, y;
    region([&] {
      h = in.x.sin();
      y = h.cos();
    });
    h.variable_data().mul_(5);
    return gradients_of({y}, {in.x});
  };
  std::vector<Way> some = all_ways();
  std::erase_if(some, [](const Way& way) { return std::string(way.name) == "packs"; });
  expect_plain_bits(program, some);
}

TEST_F(WritesUntilBackwardTest, BetweenABackwardThatMakesAGraphAndTheNextAWriteIsAnErrorAsInPlainAutograd) {
  for (const Way& way : all_ways()) {
    Inputs in;
    at::Tensor y;
    {
      const PolicyScope scope(way.policy, way.options);
      y = in.x.sin();
    }
    const Tensors gradient = torch::autograd::grad({y.sum()}, {in.x}, {}, true, /*create_graph=*/true);
    {
      const at::NoGradGuard guard;
      in.x.mul_(2);
    }
    expect_error([&] { torch::autograd::grad({gradient[0].sum()}, {in.x}); }, {kModified});
  }
}

TEST_F(WritesUntilBackwardTest, ALeafMayBeGivenOtherDataBetweenTwoBackwardsOfARegionAndTheNext) {
  expect_plain_bits([](const Region& region) {
    Inputs in;
    at::Tensor y, slope, curve;
    region([&] {
      y = in.x.sin();
      slope = torch::autograd::grad({y.sum()}, {in.x}, {}, /*retain_graph=*/true, /*create_graph=*/true)[0];
      curve = torch::autograd::grad({slope.sum()}, {in.x}, {}, /*retain_graph=*/true, /*create_graph=*/true)[0];
    });
    in.x.set_data(in.x.detach() * 0.5);
    return gradients_of({y + slope + curve}, {in.x});
  });
}

TEST_F(WritesUntilBackwardTest, RandomOrderOfManyBuffersAndRegions) {
  expect_plain_bits([](const Region& region) {
    Inputs in;
    std::vector<at::Tensor> buffers, losses;
    for (int i = 0; i < 5; ++i) {
      buffers.push_back(at::linspace(i, i + 1, 4));
    }
    for (int round = 0; round < 20; ++round) {
      region([&] {
        at::Tensor h = in.x;
        for (int i = 0; i < 3; ++i) {
          h = (h + buffers[(round * 7 + i * 3) % 5]).sin();
        }
        losses.push_back(h);
      });
      buffers[round * 3 % 5].mul_(0.5);
      buffers[round * 2 % 5].variable_data().add_(0.25);
    }
    return gradients_of(losses, {in.x});
  });
}

}  // namespace
}  // namespace ac2::test

// Values that change after the region, or behind its back.
#include <ATen/core/grad_mode.h>

#include <torch/csrc/autograd/custom_function.h>

#include "tests/support/regions.h"

namespace ac2::test {
namespace {

using OutsideChangesTest = CleanTest;

constexpr const char* kModified = "has been modified by an inplace operation";

TEST_F(OutsideChangesTest, AnInputThatBackwardUsesIsAnError) {
  for (const char* policy : {"recompute_all", "must_save_all"}) {
    at::Tensor x = sample({4}), w = constant({4});
    at::Tensor y = apply_ac_policy_fn([&] { return x * w; }, policy);
    w.add_(1);
    expect_error([&] { gradient_of(y, x); }, {kModified});
  }
  expect_next_region_works();
}

TEST_F(OutsideChangesTest, AnInputThatReplayUsesIsReadAsItWas) {
  at::Tensor x = sample({4}), w = constant({4});
  const at::Tensor expected = gradient_of((x + w).cos(), x);
  at::Tensor y = apply_ac_policy_fn([&] { return (x + w).cos(); }, "recompute_all");
  w.add_(1);
  EXPECT_TRUE(same_bits(gradient_of(y, x), expected));
}

TEST_F(OutsideChangesTest, AChangeThroughAViewIsAnErrorToo) {
  at::Tensor x = sample({4}), w = constant({3, 4});
  at::Tensor row = w[2];
  at::Tensor y = apply_ac_policy_fn([&] { return x * w[0]; }, "recompute_all");
  row.add_(1);
  expect_error([&] { gradient_of(y, x); }, {kModified});
}

// `.data` and unsafe_chunk() share the storage, but count versions by themselves.
TEST_F(OutsideChangesTest, AnInputThatWasFirstSeenThroughItsDataIsWatchedItself) {
  for (const char* policy : {"recompute_all", "must_save_all"}) {
    at::Tensor x = sample({4}), w = constant({4});
    at::Tensor y = apply_ac_policy_fn([&] { return x + w.variable_data() + x * w; }, policy);
    w.add_(1);
    expect_error([&] { gradient_of(y, x); }, {kModified});
  }
}

TEST_F(OutsideChangesTest, AResultThatChangedThroughAnUnsafeChunkIsRecomputed) {
  at::Tensor x = sample({4});
  at::Tensor chunk, y;
  {
    PolicyScope scope("recompute_all");
    chunk = at::unsafe_chunk(x.sin(), 2)[0];
    y = chunk.cos().exp();  // backward needs the cosine, and that the chunk
  }
  {
    at::NoGradGuard guard;
    chunk.zero_();
  }
  EXPECT_TRUE(same_bits(gradient_of(y, x), gradient_of(at::unsafe_chunk(x.sin(), 2)[0].cos().exp(), x)));
}

TEST_F(OutsideChangesTest, OneOfVeryManyChunksThatChangedIsRecomputedToo) {
  const at::Tensor x = sample({200});
  const auto dots = [&](const std::vector<at::Tensor>& chunks) {
    at::Tensor sum = at::zeros({1});
    for (const at::Tensor& chunk : chunks) sum = sum + chunk.cos().exp();
    return sum;
  };
  std::vector<at::Tensor> chunks;
  at::Tensor y;
  {
    PolicyScope scope("recompute_all");
    chunks = at::unsafe_chunk(x.sin(), 200);
    y = dots(chunks);
  }
  {
    at::NoGradGuard guard;
    chunks.back().zero_();
  }
  EXPECT_TRUE(same_bits(gradient_of(y, x), gradient_of(dots(at::unsafe_chunk(x.sin(), 200)), x)));
}

TEST_F(OutsideChangesTest, AChangedInputThatBackwardDoesNotUseIsNoError) {
  at::Tensor x = sample({4}), w = constant({4});
  at::Tensor left, right;
  {
    PolicyScope scope("recompute_all");
    left = x.sin().cos();
    right = x * w;
  }
  w.add_(1);
  at::Tensor gradient = gradient_of(left, x, /*retain_graph=*/true);
  EXPECT_TRUE(same_bits(gradient, gradient_of(x.sin().cos(), x)));
  expect_error([&] { gradient_of(right, x, /*retain_graph=*/true); }, {kModified});
  // Nothing recorded is lost by the failure.
  EXPECT_TRUE(same_bits(gradient_of(left, x), gradient));
}

TEST_F(OutsideChangesTest, AnInputThatIsOnlyAddedMayChange) {
  at::Tensor x = sample({4}), w = constant({4});
  at::Tensor y = apply_ac_policy_fn([&] { return x.sin() + w; }, "recompute_all");
  at::Tensor expected = gradient_of(x.sin() + w, x);
  w.zero_();
  EXPECT_TRUE(same_bits(gradient_of(y, x), expected));
}

TEST_F(OutsideChangesTest, ARecomputableResultThatChangedIsRecomputed) {
  at::Tensor x = sample({4});
  at::Tensor kept;
  at::Tensor y;
  std::shared_ptr<const Trace> trace;
  {
    PolicyScope scope("recompute_all");
    trace = scope.trace();
    kept = x.sin();
    y = kept.cos();
  }
  {
    at::NoGradGuard guard;
    kept.zero_();  // no longer what cos saw, and not needed for it
  }
  EXPECT_TRUE(same_bits(gradient_of(y, x), gradient_of(x.sin().cos(), x)));
  EXPECT_EQ(trace->stats().recomputed_ops, 1);
}

TEST_F(OutsideChangesTest, ASavedResultThatChangedIsAnError) {
  at::Tensor x = sample({4});
  at::Tensor kept;
  at::Tensor y = apply_ac_policy_fn(
      [&] {
        kept = x.sin();
        return kept.cos();
      },
      "must_save_all");
  kept.detach().zero_();
  expect_error([&] { gradient_of(y, x); }, {kModified, "aten::sin"});
}

TEST_F(OutsideChangesTest, AChangeInTheNextRegionIsAChangeFromOutside) {
  at::Tensor x = sample({4}), w = constant({4});
  at::Tensor y = apply_ac_policy_fn([&] { return x * w; }, "recompute_all");
  apply_ac_policy_fn([&] { w.add_(1); }, "recompute_all");
  expect_error([&] { gradient_of(y, x); }, {kModified});
}

TEST_F(OutsideChangesTest, AChangeWhileDisabledIsAnErrorIfUsed) {
  at::Tensor x = sample({4}), w = constant({4});
  at::Tensor used, unused;
  {
    PolicyScope scope("recompute_all");
    used = x * w;
    unused = x.sin().cos();
    DisableCheckpointing disable;
    w.add_(1);
  }
  EXPECT_TRUE(same_bits(gradient_of(unused, x), gradient_of(x.sin().cos(), x)));
  expect_error([&] { gradient_of(used, x); }, {kModified});
}

TEST_F(OutsideChangesTest, AnOptimizersStepBetweenTwoBackwardsIsAnError) {
  at::Tensor x = sample({4}), w = sample({4});
  at::Tensor y = apply_ac_policy_fn([&] { return (x * w).cos(); }, "recompute_all");
  gradient_of(y, x, /*retain_graph=*/true);
  {
    at::NoGradGuard guard;
    w.sub_(0.1);
  }
  expect_error([&] { gradient_of(y, x); }, {kModified});
}

TEST_F(OutsideChangesTest, TheErrorNamesWhatChanged) {
  at::Tensor x = sample({4, 3}), w = constant({3, 5});
  at::Tensor y = apply_ac_policy_fn([&] { return x.mm(w); }, "recompute_all");
  w.add_(1);
  expect_error([&] { gradient_of(y, x); }, {kModified, "input", "60 bytes", "version"});
}

TEST_F(OutsideChangesTest, AResultWhoseMemoryWasFreedIsRecomputed) {
  at::Tensor x = sample({4});
  at::Tensor kept;
  at::Tensor y;
  std::shared_ptr<const Trace> trace;
  {
    PolicyScope scope("recompute_all");
    trace = scope.trace();
    kept = x.sin();
    y = kept.cos();
  }
  // As programs do that give a tensor's memory back and keep the tensor.
  c10::StorageImpl* storage = kept.storage().unsafeGetStorageImpl();
  storage->set_data_ptr_noswap(storage->allocator()->allocate(0));
  storage->set_nbytes(size_t{0});
  EXPECT_TRUE(same_bits(gradient_of(y, x), gradient_of(x.sin().cos(), x)));
  EXPECT_EQ(trace->stats().recomputed_ops, 1);
}

constexpr const char* kPolicies[] = {"recompute_all", "must_save_all"};

// The gradients of plain autograd if `change` happens between forward and backward, under every policy.
void expect_same_after_change(const std::function<at::Tensor(const Tensors&)>& fn, const Tensors& inputs,
                              const std::function<void(const Tensors&)>& change) {
  const auto gradients = [&](const std::function<at::Tensor(const std::function<at::Tensor()>&)>& run) {
    Tensors copies;
    for (const at::Tensor& input : inputs) copies.push_back(leaf_like(input));
    const at::Tensor y = run([&] { return fn(copies); });
    change(copies);
    return gradients_of({y}, copies);
  };
  const Tensors expected = gradients([](const auto& call) { return call(); });
  for (const char* policy : kPolicies) {
    expect_same_bits(gradients([&](const auto& call) { return apply_ac_policy_fn(call, policy); }), expected, policy);
  }
}

TEST_F(OutsideChangesTest, ALeafThatWasGivenOtherDataIsReadAsPlainAutogradReadsIt) {
  const auto product = [](const Tensors& in) { return (in[0] * in[1]).sin(); };
  const auto set_first = [](const Tensors& in) { in[0].set_data(at::ones({4})); };
  const auto set_second = [](const Tensors& in) { in[1].set_data(at::zeros({4})); };
  expect_same_after_change(product, {sample({4}), sample({4})}, set_first);
  expect_same_after_change(product, {sample({4}), constant({4})}, set_second);
  expect_same_after_change([](const Tensors& in) { return in[0].exp() * in[1].t().mv(in[0]); },
                           {sample({4}), sample({4, 4})}, [](const Tensors& in) { in[1].set_data(at::eye(4)); });
}

TEST_F(OutsideChangesTest, OtherDataOfAnotherLayoutIsReadToo) {
  expect_same_after_change([](const Tensors& in) { return in[0].mm(in[1]).sin(); }, {sample({4, 4}), constant({4, 4})},
                           [](const Tensors& in) { in[1].set_data(in[1].t().contiguous().t()); });
}

TEST_F(OutsideChangesTest, OtherDataOfAResultWithoutAGradientIsReadToo) {
  for (const char* policy : kPolicies) {
    const at::Tensor x = sample({4}), w = constant({4});
    const auto run = [&x](const std::function<at::Tensor()>& call, at::Tensor& mask) {
      const at::Tensor y = call();
      mask.set_data(at::ones({4}));  // its old storage dies
      return gradient_of(y, x);
    };
    at::Tensor mask;
    const auto fn = [&] {
      mask = w.sin();
      return x * mask;
    };
    const at::Tensor expected = run(fn, mask);
    EXPECT_TRUE(same_bits(run([&] { return apply_ac_policy_fn(fn, policy); }, mask), expected)) << policy;
  }
}

// `make` gives a tensor without a gradient, which the program drops once it has given it other data.
void expect_other_data_of_a_dropped_tensor_is_read(const std::function<at::Tensor()>& make, const Policy& policy,
                                                   const ScopeOptions& options) {
  const at::Tensor x = sample({4});
  const auto gradient = [&](const std::function<void(const std::function<void()>&)>& run) {
    at::Tensor s, y;
    run([&] {
      s = make();
      y = (x * s).sin() * s;
    });
    s.set_data(at::full({4}, 3.));
    s = at::Tensor();
    return gradient_of(y, x);
  };
  const auto in_region = [&](const std::function<void()>& forward) {
    const PolicyScope scope(policy, options);
    forward();
  };
  EXPECT_TRUE(same_bits(gradient(in_region), gradient([](const auto& forward) { forward(); })));
}

TEST_F(OutsideChangesTest, OtherDataOfATensorThatTheProgramDropsIsReadToo) {
  const at::Tensor data = constant({4});
  const SaveWithHooks hooks{[](const at::Tensor& t) { return c10::IValue(t.clone()); },
                            [](const c10::IValue& packed) { return packed.toTensor(); }};
  const Policy packs = [&](const OpContext&) -> PolicyDecision { return hooks; };
  const std::vector<std::pair<Policy, ScopeOptions>> scopes = {{"recompute_all", {}},
                                                               {"must_save_all", {}},
                                                               {packs, {}},
                                                               {"recompute_all", {.memory_budget = int64_t{1} << 20}}};
  for (const auto& [policy, options] : scopes) {
    const auto check = [&, policy = policy, options = options](const std::function<at::Tensor()>& make) {
      expect_other_data_of_a_dropped_tensor_is_read(make, policy, options);
    };
    check([&] { return data.clone(); });
    check([&] { return data.exp(); });
    check([&] { return data.view({2, 2}).t().reshape({4}); });
  }
}

TEST_F(OutsideChangesTest, ATensorThatTheProgramDropsDiesWithItsGraphIfItWasGivenOtherData) {
  const at::Tensor x = sample({4});
  for (const bool other_data : {true, false}) {
    at::Tensor s = constant({4});
    const c10::weak_intrusive_ptr<c10::TensorImpl> weak(s.getIntrusivePtr());
    at::Tensor y = apply_ac_policy_fn([&] { return x * s; }, "must_save_all");
    if (other_data) {
      s.set_data(at::ones({4}));
    }
    s = at::Tensor();
    EXPECT_EQ(weak.expired(), !other_data);
    y = at::Tensor();
    EXPECT_TRUE(weak.expired());
  }
}

TEST_F(OutsideChangesTest, OtherDataThatIsWrittenLaterIsAnErrorAsInPlainAutograd) {
  for (const char* policy : kPolicies) {
    at::Tensor x = sample({4}), w = constant({4});
    at::Tensor y = apply_ac_policy_fn([&] { return x * w; }, policy);
    w.set_data(at::ones({4}));
    w.add_(1);
    expect_error([&] { gradient_of(y, x); }, {kModified});
  }
}

TEST_F(OutsideChangesTest, WhatReplaysTakeOfALeafThatWasGivenOtherDataIsTheOldData) {
  expect_same_after_change([](const Tensors& in) { return (in[0] + in[1]).sin(); }, {sample({4}), constant({4})},
                           [](const Tensors& in) { in[1].set_data(at::ones({4})); });
}

TEST_F(OutsideChangesTest, OtherDataOfALeafIsReadAlsoIfTheOldWasWrittenTo) {
  for (const char* policy : kPolicies) {
    const at::Tensor w = sample({4}), x = constant({4});
    const at::Tensor alias = x.variable_data();
    const at::Tensor y = apply_ac_policy_fn(
        [&] {
          const at::Tensor product = w * x;
          x.set_data(at::full({4}, 7.));
          alias.mul_(5);
          return product;
        },
        policy);
    EXPECT_TRUE(same_bits(gradient_of(y, w), gradient_of(w * at::full({4}, 7.), w))) << policy;
  }
}

// Without a gradient, as LibTorch requires it of set_() and of writes to leaves.
void move_and_write(const at::Tensor& tensor) {
  const at::NoGradGuard guard;
  tensor.set_(at::ones_like(tensor));
  tensor.add_(1);
}

TEST_F(OutsideChangesTest, SetInTheRegionLeavesTheOldBytesAsTheyAre) {
  for (const char* policy : kPolicies) {
    at::Tensor x = sample({4}), s = constant({4});
    const at::Tensor old = s.clone();
    const auto sum = [&](const at::Tensor& s) { return (x + s).sin(); };
    const at::Tensor y = apply_ac_policy_fn(
        [&] {
          const at::Tensor before = sum(s);
          move_and_write(s);
          return before * sum(s);
        },
        policy);
    EXPECT_TRUE(same_bits(gradient_of(y, x), gradient_of(sum(old) * sum(at::full({4}, 2.)), x))) << policy;
  }
}

TEST_F(OutsideChangesTest, AWriteAfterSetDataInTheRegionLeavesTheOldBytesAsTheyAre) {
  for (const char* policy : kPolicies) {
    at::Tensor x = sample({4}), s = constant({4});
    const at::Tensor old = s.clone();
    const at::Tensor y = apply_ac_policy_fn(
        [&] {
          const at::Tensor before = (x + s.detach()).sin();  // detach() shares the version counter
          s.set_data(at::ones({4}));
          s.add_(1);
          s.unsqueeze_(0);
          return before * s.mul_(2).squeeze_(0);
        },
        policy);
    EXPECT_TRUE(same_bits(gradient_of(y, x), gradient_of((x + old).sin() * 4, x))) << policy;
  }
}

// The kernel of such an op counts up the versions itself.
TEST_F(OutsideChangesTest, AWriteToAListAfterSetLeavesTheOldBytesAsTheyAre) {
  for (const char* policy : kPolicies) {
    at::Tensor x = sample({4}), s = constant({4});
    const at::Tensor old = s.clone();
    const at::Tensor y = apply_ac_policy_fn(
        [&] {
          const at::Tensor sum = (x + s).sin();
          const at::NoGradGuard guard;
          s.set_(at::ones({4}));
          at::_foreach_mul_({s, at::ones({4})}, 1.25);
          return sum;
        },
        policy);
    EXPECT_TRUE(same_bits(gradient_of(y, x), gradient_of((x + old).sin(), x))) << policy;
  }
}

TEST_F(OutsideChangesTest, AStateThatIsSetInEachRoundOfALoopIsReadAsItWas) {
  for (const char* policy : kPolicies) {
    const at::Tensor x = sample({4}), first = constant({4});
    const auto loop = [&] {
      at::Tensor state = first.clone(), sum = at::zeros({4});
      for (int round = 0; round < 5; ++round) {
        at::Tensor h = (x + state).sin();
        sum = sum + h.exp();
        at::NoGradGuard guard;
        state.set_(h.detach());
        state.mul_(0.5);
      }
      return sum;
    };
    const at::Tensor expected = gradient_of(loop(), x);
    EXPECT_TRUE(same_bits(gradient_of(apply_ac_policy_fn(loop, policy), x), expected)) << policy;
  }
}

TEST_F(OutsideChangesTest, AStateThatIsSetInARegionOfEachRoundIsReadAsItWas) {
  for (const char* policy : kPolicies) {
    const at::Tensor x = sample({4}), first = constant({4});
    const auto loop = [&](const std::function<at::Tensor(const std::function<at::Tensor()>&)>& region) {
      at::Tensor state = first.clone(), sum = at::zeros({4});
      for (int round = 0; round < 5; ++round) {
        sum = sum + region([&] {
                at::Tensor h = (x + state).sin();
                at::NoGradGuard guard;
                state.set_(h.detach());
                state.mul_(0.5);
                at::AutoGradMode enable(true);
                return h.exp();
              });
      }
      return gradient_of(sum, x);
    };
    const auto in_region = [&](const auto& fn) { return apply_ac_policy_fn(fn, policy); };
    EXPECT_TRUE(same_bits(loop(in_region), loop([](const auto& fn) { return fn(); }))) << policy;
  }
}

// sin(x + s) in a region that then moves and writes s more often than such writes are told apart.
at::Tensor sine_before_many_moves(const at::Tensor& x, const at::Tensor& s) {
  return apply_ac_policy_fn(
      [&] {
        const at::Tensor sum = (x + s).sin();
        for (int round = 0; round < 5000; ++round) {
          move_and_write(s);
        }
        return sum;
      },
      "recompute_all");
}

TEST_F(OutsideChangesTest, OfATensorThatWasMovedTooOftenEveryWriteCountsAsFromOutside) {
  at::Tensor x = sample({4}), s = constant({4});
  const at::Tensor stays = s.detach();
  const at::Tensor y = sine_before_many_moves(x, s);
  expect_error([&] { gradient_of(y, x); }, {kModified});
}

TEST_F(OutsideChangesTest, ATensorOfWhichNoAliasHasStayedMayBeMovedAnyNumberOfTimes) {
  at::Tensor x = sample({4}), s = constant({4});
  const at::Tensor old = s.clone();
  const at::Tensor y = sine_before_many_moves(x, s);
  EXPECT_TRUE(same_bits(gradient_of(y, x), gradient_of((x + old).sin(), x)));
}

TEST_F(OutsideChangesTest, ASavedResultThatIsSetIsReadAsItWas) {
  at::Tensor x = sample({4});
  const at::Tensor w = constant({4});
  const at::Tensor y = apply_ac_policy_fn(
      [&] {
        at::Tensor z = w.sin();
        const at::Tensor product = (x * z.detach()).cos();
        move_and_write(z);
        return product;
      },
      "must_save_all");
  EXPECT_TRUE(same_bits(gradient_of(y, x), gradient_of((x * w.sin()).cos(), x)));
}

TEST_F(OutsideChangesTest, AWriteToTheOldBytesOfATensorThatWasSetIsSeenWhileTheRegionIsDisabled) {
  for (const bool before_the_move : {true, false}) {
    at::Tensor x = sample({4}), s = constant({4});
    const at::Tensor stays = s.detach();  // with the version counter of `s`
    const at::Tensor old = s.clone();
    const at::Tensor y = apply_ac_policy_fn(
        [&] {
          const at::Tensor sum = (x + s).sin();
          if (before_the_move) {
            const DisableCheckpointing off;
            s.add_(1);
          }
          move_and_write(s);
          if (!before_the_move) {
            const DisableCheckpointing off;
            stays.add_(1);
          }
          move_and_write(s);
          return sum;
        },
        "recompute_all");
    EXPECT_TRUE(same_bits(gradient_of(y, x), gradient_of((x + old).sin(), x)));
  }
}

TEST_F(OutsideChangesTest, AWriteToTheOldBytesOfATensorThatWasSetIsSeenInTheRegion) {
  for (const char* policy : kPolicies) {
    at::Tensor x = sample({4}), s = constant({4});
    const at::Tensor stays = s.detach(), old = s.clone();
    const at::Tensor y = apply_ac_policy_fn(
        [&] {
          const at::Tensor sum = (x + s).sin();
          move_and_write(s);
          stays.add_(1);
          move_and_write(s);
          return sum * (x + stays).cos();
        },
        policy);
    EXPECT_TRUE(same_bits(gradient_of(y, x), gradient_of((x + old).sin() * (x + (old + 1)).cos(), x))) << policy;
  }
}

class Halve : public torch::autograd::Function<Halve> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, at::Tensor x) {
    x.mul_(0.5);
    context->mark_dirty({x});
    return x;
  }
  static std::vector<at::Tensor> backward(torch::autograd::AutogradContext*, const std::vector<at::Tensor>& gradients) {
    return {gradients[0] * 0.5};
  }
};

// mark_dirty() counts up the version once more than the op that writes.
TEST_F(OutsideChangesTest, AFunctionThatMarksAMovedTensorDirtyLeavesTheOldBytesAsTheyAre) {
  for (const char* policy : kPolicies) {
    for (const bool by_set_data : {false, true}) {
      at::Tensor x = sample({4});
      const at::Tensor w = constant({4});
      const at::Tensor y = apply_ac_policy_fn(
          [&] {
            at::Tensor z = w.sin();
            const at::Tensor product = (x * z.detach()).cos();
            const at::NoGradGuard guard;
            if (by_set_data) {
              z.set_data(at::ones_like(z));
            } else {
              z.set_(at::ones_like(z));
            }
            Halve::apply(z);
            return product;
          },
          policy);
      EXPECT_TRUE(same_bits(gradient_of(y, x), gradient_of((x * w.sin()).cos(), x))) << policy << by_set_data;
    }
  }
}

TEST_F(OutsideChangesTest, AFunctionThatMarksAMovedTensorDirtyMayFollowAStatementWithAnAliasOfTheOldBytes) {
  for (const char* policy : kPolicies) {
    at::Tensor x = sample({4});
    const at::Tensor w = constant({4});
    const auto fn = [&] {
      at::Tensor s;
      {
        const DisableCheckpointing outside;
        s = w.clone();
      }
      const at::NoGradGuard guard;
      s.set_data(s.detach() * 0.5);  // the alias lives to the end of the statement
      at::Tensor product;
      {
        const at::AutoGradMode enable(true);
        product = (x + s).sin();
      }
      Halve::apply(s);
      return product;
    };
    const at::Tensor y = apply_ac_policy_fn(fn, policy);
    EXPECT_TRUE(same_bits(gradient_of(y, x), gradient_of(fn(), x))) << policy;
  }
}

// The region cannot know that it was not the alias that was written to.
TEST_F(OutsideChangesTest, AFunctionThatMarksAMovedTensorDirtyIsAnErrorWhereAnAliasHasStayed) {
  at::Tensor x = sample({4}), s = constant({4});
  const at::Tensor stays = s.detach();
  const at::Tensor y = apply_ac_policy_fn(
      [&] {
        const at::Tensor sum = (x + s).sin();
        const at::NoGradGuard guard;
        s.set_(at::ones_like(s));
        Halve::apply(s);
        return sum;
      },
      "recompute_all");
  expect_error([&] { gradient_of(y, x); }, {kModified});
}

}  // namespace
}  // namespace ac2::test

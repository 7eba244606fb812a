// Saving in another form: when pack and unpack run, and what comes of what they return.
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "policies/policies.h"
#include "tests/support/regions.h"

namespace ac2::test {
namespace {

using SaveWithHooksTest = CleanTest;

struct Calls {
  int packs = 0;
  int unpacks = 0;
};

// Keeps a copy of the tensor, and counts.
SaveWithHooks counting(Calls& calls) {
  return {[&calls](const at::Tensor& t) {
            ++calls.packs;
            return c10::IValue(t.clone());
          },
          [&calls](const c10::IValue& packed) {
            ++calls.unpacks;
            return packed.toTensor();
          }};
}

// `hooks` for sin, recompute for the others.
Policy for_sin(SaveWithHooks hooks) {
  return [decision = PolicyDecision(std::move(hooks))](const OpContext& op) {
    return op.is("aten::sin") ? decision : CheckpointPolicy::PREFER_RECOMPUTE;
  };
}

TEST_F(SaveWithHooksTest, AreAPolicyThatPacksAll) {
  Calls calls;
  at::Tensor x = sample({4});
  at::Tensor y;
  {
    const PolicyScope scope(counting(calls));
    y = x.sin().cos().tanh();
  }
  const at::Tensor gradient = gradient_of(y, x);
  EXPECT_EQ(calls.packs, 2);  // sin(x) for cos, and the result that tanh saves
  EXPECT_EQ(calls.unpacks, 2);
  EXPECT_TRUE(same_bits(gradient, gradient_of(x.sin().cos().tanh(), x)));
}

TEST_F(SaveWithHooksTest, PacksOnceInForwardAndUnpacksInBackward) {
  Calls calls;
  at::Tensor x = sample({4});
  at::Tensor y;
  std::shared_ptr<const Trace> trace;
  {
    PolicyScope scope(for_sin(counting(calls)));
    trace = scope.trace();
    at::Tensor s = x.sin();
    EXPECT_EQ(calls.packs, 0);  // nothing needs it yet
    at::Tensor c = s.cos();
    EXPECT_EQ(calls.packs, 1);
    y = c + s.tan();  // tan needs its own result alone
    EXPECT_EQ(calls.packs, 1);
  }
  EXPECT_EQ(calls.unpacks, 0);
  at::Tensor gradient = gradient_of(y, x);
  at::Tensor s = x.sin();
  EXPECT_TRUE(same_bits(gradient, gradient_of(s.cos() + s.tan(), x)));
  EXPECT_EQ(calls.packs, 1);
  // Once for cos and tan together: it lives until both have had it.
  EXPECT_EQ(calls.unpacks, 1);
  EXPECT_EQ(trace->stats().recomputed_ops, 1);
}

TEST_F(SaveWithHooksTest, DoesNotPackWhatNothingNeeds) {
  Calls calls;
  at::Tensor x = sample({4});
  at::Tensor y;
  {
    PolicyScope scope(for_sin(counting(calls)));
    y = x.sin();
  }
  gradient_of(y, x);
  EXPECT_EQ(calls.packs, 0);
  EXPECT_EQ(calls.unpacks, 0);
}

// An object in which a pack function hides its tensor.
struct Hiding : torch::CustomClassHolder {
  explicit Hiding(at::Tensor tensor) : tensor(std::move(tensor)) {}
  at::Tensor tensor;
};

// Packs into the memory of the tensor itself, in so many ways.
std::vector<std::pair<std::string, SaveWithHooks>> packing_in_place() {
  const auto same = [](const c10::IValue& packed) { return packed.toTensor(); };
  return {
      {"the tensor", {[](const at::Tensor& t) { return c10::IValue(t); }, same}},
      {"a view", {[](const at::Tensor& t) { return c10::IValue(t.view({-1})); }, same}},
      {"a tuple",
       {[](const at::Tensor& t) { return c10::IValue(c10::ivalue::Tuple::create({c10::IValue(t)})); },
        [](const c10::IValue& packed) { return packed.toTupleRef().elements()[0].toTensor(); }}},
      {"the same addresses",
       {[](const at::Tensor& t) {
          return c10::IValue(at::from_blob(
              t.data_ptr(), t.sizes(), [keep = t](void*) {}, t.options()));
        },
        same}},
      {"an object that hides it",
       {[](const at::Tensor& t) { return c10::IValue::make_capsule(c10::make_intrusive<Hiding>(t)); },
        [](const c10::IValue& packed) {
          return c10::static_intrusive_pointer_cast<Hiding>(packed.toCapsule())->tensor;
        }}},
  };
}

TEST_F(SaveWithHooksTest, AWriteAfterPackDoesNotReachWhatPackReturnedOfTheTensorItself) {
  at::Tensor x = sample({4});
  // `written` is read by an op that is replayed, and then overwritten, which plain autograd allows.
  const auto forward = [&x](bool writes_inside) {
    at::Tensor written = x * 2;
    at::Tensor y = (written + 1).sigmoid();
    if (writes_inside) {
      written.mul_(-3);
    }
    return std::pair(y * y, written);
  };
  const at::Tensor plain = gradient_of(forward(false).first, x);
  for (const auto& [name, hooks] : packing_in_place()) {
    for (const bool writes_inside : {false, true}) {
      at::Tensor y, written;
      {
        const PolicyScope scope([decision = PolicyDecision(hooks)](const OpContext& op) {
          return op.is("aten::mul") ? decision : CheckpointPolicy::PREFER_RECOMPUTE;
        });
        std::tie(y, written) = forward(writes_inside);
      }
      written.zero_();
      EXPECT_TRUE(same_bits(gradient_of(y, x), plain)) << name << ", " << writes_inside;
    }
  }
}

TEST_F(SaveWithHooksTest, PackRunsOnceIfWhatItReturnsOfTheTensorIsSeenAndTwiceIfItIsHidden) {
  for (const auto& [name, hooks] : packing_in_place()) {
    int packs = 0;
    const SaveWithHooks counting{[&packs, pack = hooks.pack](const at::Tensor& t) {
                                   ++packs;
                                   return pack(t);
                                 },
                                 hooks.unpack};
    at::Tensor x = sample({4});
    at::Tensor y;
    {
      const PolicyScope scope(policies::per_op_override("recompute_all", {{"aten::sin", counting}}));
      y = x.sin().cos();
    }
    EXPECT_EQ(packs, name == "an object that hides it" ? 2 : 1) << name;
  }
}

TEST_F(SaveWithHooksTest, APackFunctionThatWritesToItsTensorIsAnError) {
  at::Tensor x = sample({4});
  const SaveWithHooks writes{[](const at::Tensor& t) { return c10::IValue(t.mul_(2).clone()); },
                             [](const c10::IValue& packed) { return packed.toTensor(); }};
  expect_error(
      [&] {
        const PolicyScope scope(writes);
        x.sin().cos();
      },
      {"The pack function of", "has written to the tensor of shape [4]", "clone()"});
}

TEST_F(SaveWithHooksTest, WhatIsUnpackedIsWhatBackwardSees) {
  at::Tensor x = sample({4});
  at::Tensor y;
  {
    PolicyScope scope(for_sin({[](const at::Tensor& t) { return c10::IValue(t.to(at::kHalf)); },
                               [](const c10::IValue& v) { return v.toTensor().to(at::kFloat); }}));
    y = x.sin().cos();
  }
  at::Tensor rounded = x.detach().sin().to(at::kHalf).to(at::kFloat);
  at::Tensor unchanged = gradient_of(x.sin().cos(), x);
  // The chain rule by hand: only cos's own derivative sees the rounded value.
  at::Tensor output_gradient = at::arange(1, 5, at::kDouble).mul(0.37).cos().to(at::kFloat);
  at::Tensor expected = output_gradient * -rounded.sin() * x.detach().cos();
  at::Tensor gradient = gradient_of(y, x);
  EXPECT_TRUE(same_bits(gradient, expected));
  EXPECT_FALSE(at::equal(gradient, unchanged));
}

// Autograd saves an op's arguments before the op runs, and the op reads them through the caller's references.
TEST_F(SaveWithHooksTest, PackMayDropTheArgumentsOfTheOpThatIsAboutToRun) {
  const at::Tensor x = sample({4, 4}), target = at::ones({4});
  at::Tensor h, t;
  const std::vector<std::pair<const char*, std::function<at::Tensor()>>> ops = {
      {"cos", [&] { return h.cos(); }},
      {"mul", [&] { return h * h; }},
      {"mm", [&] { return h.mm(h); }},
      {"reshape",
       [&] {
         return h.square().reshape({2, 8});
       }},
      {"linear, made of other ops", [&] { return at::linear(h, h, h[0]); }},
      {"cosine_embedding_loss, made of other ops", [&] { return at::cosine_embedding_loss(h, h, t); }},
      {"mul_", [&] { return x.cos().mul_(h); }},
      {"a list",
       [&] {
         return at::einsum("ij,jk,kl->il", {h, h, h});
       }},
  };
  for (const bool others_have_it : {false, true}) {
    for (const auto& [name, op] : ops) {
      SCOPED_TRACE(name);
      const auto run = [&, op = op] {
        h = x.sin();
        t = target.clone();
        return op();
      };
      const at::Tensor expected = gradient_of(run(), x);
      std::vector<at::Tensor> others;
      const SaveWithHooks hooks{[&](const at::Tensor& tensor) {
                                  if (others_have_it) others = {h, t};
                                  h = t = at::Tensor();
                                  return c10::IValue(tensor.clone());
                                },
                                [](const c10::IValue& packed) { return packed.toTensor(); }};
      const at::Tensor y = apply_ac_policy_fn(run, for_sin(hooks));
      EXPECT_FALSE(h.defined());
      EXPECT_TRUE(same_bits(gradient_of(y, x), expected));
    }
  }
}

TEST_F(SaveWithHooksTest, PacksIntoAnyIValue) {
  const std::vector<std::pair<const char*, SaveWithHooks>> forms = {
      {"a tuple of codes and scale",
       {[](const at::Tensor& t) {
          return c10::IValue(c10::ivalue::Tuple::create({t.mul(2), c10::IValue(0.5)}));
        },
        [](const c10::IValue& v) {
          const auto& elements = v.toTupleRef().elements();
          return elements[0].toTensor().mul(elements[1].toDouble());
        }}},
      {"a string",
       {[](const at::Tensor& t) {
          at::Tensor flat = t.contiguous();
          return c10::IValue(std::string(static_cast<const char*>(flat.const_data_ptr()), flat.nbytes()));
        },
        [](const c10::IValue& v) {
          at::Tensor t = at::empty({2, 3});
          std::copy_n(v.toStringRef().data(), t.nbytes(), static_cast<char*>(t.data_ptr()));
          return t;
        }}}};
  for (const auto& [name, hooks] : forms) {
    SCOPED_TRACE(name);
    expect_same_gradients_and_replays([](const Tensors& in) { return Tensors{in[0].sin().cos()}; }, {sample({2, 3})}, 0,
                                      for_sin(hooks));
  }
}

TEST_F(SaveWithHooksTest, UnpacksAgainInASecondBackward) {
  Calls calls;
  at::Tensor x = sample({4});
  at::Tensor y;
  {
    PolicyScope scope(for_sin(counting(calls)));
    y = x.sin().cos();
  }
  at::Tensor first = gradient_of(y, x, /*retain_graph=*/true);
  EXPECT_EQ(calls.unpacks, 1);
  EXPECT_TRUE(same_bits(gradient_of(y, x), first));
  EXPECT_EQ(calls.unpacks, 2);
  EXPECT_EQ(calls.packs, 1);
}

TEST_F(SaveWithHooksTest, StridesOfWhatIsUnpackedAreFree) {
  auto transposed = [](const at::Tensor& t) { return c10::IValue(t.t().contiguous()); };
  auto back = [](const c10::IValue& v) { return v.toTensor().t(); };
  at::Tensor x = sample({3, 5});
  at::Tensor y;
  {
    PolicyScope scope(for_sin({transposed, back}));
    y = x.sin().cos();
  }
  EXPECT_TRUE(at::equal(gradient_of(y, x), gradient_of(x.sin().cos(), x)));
}

TEST_F(SaveWithHooksTest, UnpackMayReturnALazilyConjugatedOrNegatedTensor) {
  const SaveWithHooks lazy{
      [](const at::Tensor& t) {
        return c10::IValue(t.is_complex() ? t.conj().resolve_conj() : at::_neg_view(t).resolve_neg());
      },
      [](const c10::IValue& packed) {
        const at::Tensor t = packed.toTensor();
        return t.is_complex() ? t.conj() : at::_neg_view(t);
      }};
  expect_same_gradients(
      [](const Tensors& in) { return Tensors{at::view_as_real(at::complex(in[0].sin(), in[0].cos()).exp().tanh())}; },
      {sample({4})}, Policy::constant(lazy));
}

TEST_F(SaveWithHooksTest, AViewOfThePackedTensorIsSeenThroughIt) {
  Calls calls;
  expect_same_gradients_and_replays(
      [](const Tensors& in) {
        at::Tensor s = in[0].sin();
        return Tensors{s[1].cos(), s.t().slice(0, 1, 3).tan()};
      },
      // Both outputs are alive; cos needs a row of sin's result.
      {sample({4, 4})}, 0, for_sin(counting(calls)));
  EXPECT_EQ(calls.packs, 1);
}

TEST_F(SaveWithHooksTest, AReplayedWriteLeavesWhatWasPackedAsItIs) {
  // unpack returns the very tensor that pack made; mul_ is replayed on its values.
  Calls calls;
  auto fn = [](const at::Tensor& x) {
    at::Tensor s = x.sin();
    (s + 1).cos();  // s is packed for the sum's sake, which then is not needed after all
    s.mul_(2);
    return s.cos();
  };
  at::Tensor x = sample({4});
  at::Tensor expected = gradient_of(fn(x), x);
  at::Tensor y = apply_ac_policy_fn(fn, for_sin(counting(calls)), x);
  for (bool retain_graph : {true, true, false}) {
    EXPECT_TRUE(same_bits(gradient_of(y, x, retain_graph), expected));
  }
}

TEST_F(SaveWithHooksTest, PacksWhatAnOpWritesOverASavedValue) {
  // sin's result is saved and nothing needs it: mul_ cannot be replayed, and its result has to be kept somehow.
  Calls calls;
  const Policy policy = Policy::constant(counting(calls));
  auto fn = [](const at::Tensor& x) { return x.sin().mul_(2).cos(); };
  at::Tensor x = sample({64});
  at::Tensor y;
  {
    PolicyScope scope(policy);
    y = fn(x);
    // x for sin itself, and the copy for cos.
    EXPECT_EQ(scope.trace()->stats().saved_bytes, 2 * 64 * 4);
  }
  EXPECT_EQ(calls.packs, 1);
  EXPECT_EQ(calls.unpacks, 0);
  at::Tensor expected = gradient_of(fn(x), x);
  EXPECT_TRUE(same_bits(gradient_of(y, x), expected));
  EXPECT_EQ(calls.unpacks, 1);
}

TEST_F(SaveWithHooksTest, PacksWhatAnOpWritesThroughAView) {
  Calls calls;
  auto fn = [](const Tensors& in) {
    at::Tensor s = in[0].sin();
    s[1].mul_(3);
    return Tensors{s.cos()};
  };
  expect_same_gradients_and_replays(fn, {sample({4, 4})}, 0, Policy::constant(counting(calls)));
  EXPECT_EQ(calls.packs, 1);
}

TEST_F(SaveWithHooksTest, OpsInsideTheHooksAreNotRecorded) {
  Calls calls;
  at::Tensor x = sample({4});
  at::Tensor y;
  std::shared_ptr<const Trace> trace;
  SaveWithHooks hooks = counting(calls);
  bool enabled = false;
  SaveWithHooks looking = {[&](const at::Tensor& t) {
                             enabled |= is_checkpoint_enabled();
                             return hooks.pack(t.exp().log());
                           },
                           hooks.unpack};
  {
    PolicyScope scope(for_sin(looking));
    trace = scope.trace();
    y = x.sin().cos();
  }
  EXPECT_FALSE(enabled);
  EXPECT_EQ(trace->stats().recorded_ops, 2);
  gradient_of(y, x);
}

TEST_F(SaveWithHooksTest, HoldsWhatPackReturnedAndNotTheTensor) {
  at::Tensor x = sample({64});
  at::Tensor y;
  std::weak_ptr<int> token;
  {
    auto alive = std::make_shared<int>();
    token = alive;
    PolicyScope scope(for_sin({[alive](const at::Tensor& t) { return c10::IValue(t.to(at::kHalf)); },
                               [](const c10::IValue& v) { return v.toTensor().to(at::kFloat); }}));
    y = x.sin().cos();
    // x for sin itself, and 64 halves for cos.
    EXPECT_EQ(scope.trace()->stats().saved_bytes, 64 * 4 + 64 * 2);
  }
  EXPECT_FALSE(token.expired());
  gradient_of(y, x);
  y.reset();
  EXPECT_TRUE(token.expired());
}

TEST_F(SaveWithHooksTest, WhatItWasMadeOfIsNotLookedAt) {
  Calls calls;
  const at::Tensor x = sample({4, 3}), w = sample({3});
  at::Tensor of_values, of_indices;
  const at::Tensor input = x.detach().clone();
  {
    const PolicyScope scope("recompute_all");
    const auto [values, indices] = input.max(0);
    tag_with_policy(values, counting(calls));
    of_values = w * values;
    of_indices = x.gather(0, indices.unsqueeze(0));  // so that max may have to be replayed, on the input
  }
  const at::Tensor expected = std::get<0>(input.max(0));
  input.zero_();
  EXPECT_TRUE(same_bits(gradient_of(of_values, w), gradient_of(w * expected, w)));
  EXPECT_EQ(calls.unpacks, 1);
}

TEST_F(SaveWithHooksTest, CountsAsAMust) {
  Calls calls;
  PolicyDecision decision(counting(calls));
  EXPECT_TRUE(decision.is_must());
  EXPECT_TRUE(decision.saves());
  Policy hooks = Policy::constant(decision);
  auto run = [](Policy outer, Policy inner) {
    at::Tensor x = sample({4});
    at::Tensor y;
    {
      PolicyScope outer_scope(std::move(outer));
      PolicyScope inner_scope(std::move(inner));
      y = x.sin().cos();
    }
    gradient_of(y, x);
  };
  run(hooks, "recompute_all");
  EXPECT_EQ(std::exchange(calls.packs, 0), 1);  // sin's result, for cos
  run("recompute_all", hooks);
  EXPECT_EQ(std::exchange(calls.packs, 0), 1);
  run(hooks, hooks);  // the very same hooks
  EXPECT_EQ(std::exchange(calls.packs, 0), 1);
  for (CheckpointPolicy other :
       {CheckpointPolicy::MUST_SAVE, CheckpointPolicy::MUST_RECOMPUTE, CheckpointPolicy::MUST_CPU_OFFLOAD}) {
    expect_error([&] { run(hooks, Policy::constant(other)); }, {"Conflicting policies", "aten::sin", to_string(other)});
  }
  expect_error([&] { run(hooks, Policy::constant(counting(calls))); }, {"Conflicting policies", "aten::sin"});
  expect_next_region_works();
}

}  // namespace
}  // namespace ac2::test

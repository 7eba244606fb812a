// Entries of docs/coming_from.md: the Python AC2.
#include <torch/csrc/autograd/autograd.h>

#include "policies/policies.h"
#include "tests/coming_from/entry.h"

namespace ac2::test {
namespace {

using PythonAc2Test = EntryTest;

// Of products(): x and w. Three results besides are wanted by backward.
constexpr int64_t kInputs = 2 * kTensorBytes;

TEST_F(PythonAc2Test, ARegionIsAScope) {
  const Policy policy = policies::save_ops({"aten::mm"});
  expect_same_and_replays(
      [&] {
        ac2::PolicyScope scope(policy);
        watch(scope);
        return products(x, w);
      },
      [&] { return products(x, w); }, {x, w}, 1);
}

TEST_F(PythonAc2Test, AFunctionIsCalledInARegion) {
  const Policy policy = policies::save_ops({"aten::mm"});
  const auto fn = [](const at::Tensor& a, const at::Tensor& b) { return products(a, b); };
  expect_same([&] { return ac2::apply_ac_policy_fn(fn, policy, x, w); }, [&] { return products(x, w); }, {x, w});
}

TEST_F(PythonAc2Test, TwoPoliciesHaveNames) {
  for (const bool saves : {false, true}) {
    const auto ours = [&] {
      if (saves) {
        ac2::PolicyScope scope("must_save_all");
        watch(scope);
        return products(x, w);
      }
      ac2::PolicyScope scope("recompute_all");
      watch(scope);
      return products(x, w);
    };
    expect_same_and_replays(
        ours, [&] { return products(x, w); }, {x, w}, saves ? 0 : 3);
  }
}

TEST_F(PythonAc2Test, AFactoryMakesAPolicyForEachRegion) {
  int made = 0;
  const auto make_policy_fn = [&] {
    ++made;
    return [](const OpContext& op) { return op.is("aten::mm"); };
  };
  const ac2::Policy policy = ac2::Policy::factory(make_policy_fn);
  EXPECT_EQ(run_products(policy).backward.recomputed_ops, 1);
  EXPECT_EQ(run_products(policy).backward.recomputed_ops, 1);
  EXPECT_EQ(made, 2);
}

TEST_F(PythonAc2Test, NestedPoliciesAreResolvedFromTheOutside) {
  const Policy policy1 = "recompute_all";
  const Policy policy2 = policies::save_ops({"aten::mm"});
  expect_same_and_replays(
      [&] {
        ac2::PolicyScope outer(policy1);
        watch(outer);
        at::Tensor h;
        {
          ac2::PolicyScope inner(policy2);
          h = x.mm(w);
        }
        return h.sin().mm(w).cos();
      },
      [&] { return products(x, w); }, {x, w}, 2);  // sin, and the product outside
  expect_error(
      [&] {
        PolicyScope outer(CheckpointPolicy::MUST_RECOMPUTE);
        PolicyScope inner(policy2);
        x.mm(w);
      },
      {"Conflicting policies"});
}

TEST_F(PythonAc2Test, AFunctionSeesTheResults) {
  const at::Tensor wide = sample({4, 8}), tall = sample({8, 4});
  ac2::Policy policy = [](const ac2::OpContext& op) { return op.outputs()[0].toTensor().numel() > 16; };
  const auto fn = [&] { return x.mm(wide).sin().mm(tall).cos(); };
  expect_same_and_replays(
      [&] {
        PolicyScope scope(policy);
        watch(scope);
        return fn();
      },
      fn, {x, wide, tall}, 1);  // the product with tall
}

TEST_F(PythonAc2Test, ATagSavesOneTensor) {
  expect_same_and_replays(
      [&] {
        PolicyScope scope("recompute_all");
        watch(scope);
        at::Tensor z = x.mm(w);
        ac2::tag_with_policy(z, ac2::CheckpointPolicy::MUST_SAVE);
        return z.sin().mm(w).cos();
      },
      [&] { return products(x, w); }, {x, w}, 2);
}

TEST_F(PythonAc2Test, ATagRecomputesOneTensor) {
  expect_same_and_replays(
      [&] {
        PolicyScope scope("must_save_all");
        watch(scope);
        at::Tensor z = x.mm(w);
        ac2::tag_with_policy(z, ac2::CheckpointPolicy::MUST_RECOMPUTE);
        return z.sin().mm(w).cos();
      },
      [&] { return products(x, w); }, {x, w}, 1);
}

TEST_F(PythonAc2Test, HooksSaveInAFormOfTheirOwn) {
  const auto pack = [](const at::Tensor& t) { return c10::IValue(t.to(at::kDouble)); };
  const auto unpack = [](const c10::IValue& packed) { return packed.toTensor().to(at::kFloat); };
  const ac2::SaveWithHooks hooks{pack, unpack};
  const Stats stats = expect_same(
      [&] {
        ac2::PolicyScope scope(ac2::Policy::constant(hooks));
        watch(scope);
        return products(x, w);
      },
      [&] { return products(x, w); }, {x, w});
  EXPECT_EQ(stats.forward.saved_bytes, kInputs + 3 * 2 * kTensorBytes);
  EXPECT_EQ(stats.backward.recomputed_ops, 0);
}

TEST_F(PythonAc2Test, ATagMayHaveHooks) {
  const SaveWithHooks hooks{[](const at::Tensor& t) { return c10::IValue(t.to(at::kDouble)); },
                            [](const c10::IValue& packed) { return packed.toTensor().to(at::kFloat); }};
  const Stats stats = expect_same(
      [&] {
        PolicyScope scope("recompute_all");
        watch(scope);
        at::Tensor z = x.mm(w);
        ac2::tag_with_policy(z, hooks);
        return z.sin().mm(w).cos();
      },
      [&] { return products(x, w); }, {x, w});
  EXPECT_EQ(stats.forward.saved_bytes, kInputs + 2 * kTensorBytes);
}

TEST_F(PythonAc2Test, TellsWhetherARegionIsOpen) {
  EXPECT_FALSE(ac2::is_checkpoint_enabled());
  PolicyScope scope("recompute_all");
  EXPECT_TRUE(is_checkpoint_enabled());
}

TEST_F(PythonAc2Test, RandomOpsAndWritesAreRecomputedToo) {
  const auto fn = [&] { return at::dropout(x.mm(w), 0.5, /*train=*/true).add_(1).cos(); };
  const Stats stats = expect_same(
      [&] {
        ac2::PolicyScope scope("recompute_all");
        watch(scope);
        return fn();
      },
      fn, {x, w});
  EXPECT_EQ(stats.forward.saved_bytes, kInputs);
}

TEST_F(PythonAc2Test, HigherDerivativesAndRetainedGraphsWork) {
  const auto second = [&](bool region) {
    at::Tensor y;
    if (region) {
      ac2::PolicyScope scope("recompute_all");
      y = wave(x).sum();
    } else {
      y = wave(x).sum();
    }
    at::Tensor first = torch::autograd::grad({y}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true)[0];
    return Tensors{first.detach(), torch::autograd::grad({first.sum()}, {x})[0]};
  };
  expect_same_bits(second(true), second(false), "derivative");
}

}  // namespace
}  // namespace ac2::test

// Entries of docs/coming_from.md: selective policies of torch.utils.checkpoint.
#include <utility>
#include <vector>

#include "ac2/testing/counting_allocator.h"
#include "policies/policies.h"
#include "tests/coming_from/entry.h"

namespace ac2::test {
namespace {

class SelectiveTest : public EntryTest {
 protected:
  testing::CountingAllocator& memory = testing::CountingAllocator::install();
};

// products() has three results that backward wants, and x and w.
constexpr int64_t kInputs = 2 * kTensorBytes;

TEST_F(SelectiveTest, EachDecisionDoesWhatItsNameSays) {
  const std::vector<std::pair<CheckpointPolicy, int64_t>> replays = {
      {ac2::CheckpointPolicy::MUST_SAVE, 0},        {ac2::CheckpointPolicy::PREFER_SAVE, 0},
      {ac2::CheckpointPolicy::MUST_RECOMPUTE, 3},   {ac2::CheckpointPolicy::PREFER_RECOMPUTE, 3},
      {ac2::CheckpointPolicy::MUST_CPU_OFFLOAD, 0}, {ac2::CheckpointPolicy::PREFER_CPU_OFFLOAD, 0}};
  for (size_t i = 0; i < replays.size(); ++i) {
    const auto [policy, ops] = replays[i];
    EXPECT_EQ(static_cast<size_t>(policy), i);  // as in Python
    const Stats stats = run_products(policy);
    EXPECT_EQ(stats.backward.recomputed_ops, ops) << to_string(policy);
    EXPECT_EQ(stats.forward.saved_bytes, kInputs + (ops == 0 ? 3 * kTensorBytes : 0)) << to_string(policy);
  }
}

TEST_F(SelectiveTest, SavingEverythingHoldsWhatAutogradHolds) {
  const auto held = [&](const Program& program) {
    const int64_t before = memory.current_bytes();
    at::Tensor y = program();
    return memory.current_bytes() - before;
  };
  const int64_t plain = held([&] { return products(x, w); });
  EXPECT_EQ(held([&] {
              ac2::PolicyScope scope(ac2::CheckpointPolicy::PREFER_SAVE);
              return products(x, w);
            }),
            plain);
}

TEST_F(SelectiveTest, AListOfOpsIsSaved) {
  const Stats stats = expect_same(
      [&] {
        ac2::PolicyScope scope(ac2::policies::save_ops({"aten::mm"}));
        watch(scope);
        return products(x, w);
      },
      [&] { return products(x, w); }, {x, w});
  EXPECT_EQ(stats.forward.saved_bytes, kInputs + 2 * kTensorBytes);
  EXPECT_EQ(stats.backward.recomputed_ops, 1);  // sin
}

TEST_F(SelectiveTest, AListMayHavePatterns) {
  const Policy policy = ac2::policies::save_ops({"aten::mm", "aten::_scaled_dot_product_*"});
  at::Tensor q = sample({1, 1, 4, 4});
  const auto fn = [&] { return at::scaled_dot_product_attention(q.sin(), q.sin(), q.sin()).cos(); };
  expect_same_and_replays(
      [&] {
        PolicyScope scope(policy);
        watch(scope);
        return fn();
      },
      fn, {q}, 3);  // the sines
}

TEST_F(SelectiveTest, TheListOfPytorchsPartitionerIsAPolicy) {
  EXPECT_EQ(run_products(ac2::policies::save_compute_intensive()).backward.recomputed_ops, 1);
}

TEST_F(SelectiveTest, AFunctionDecides) {
  ac2::Policy policy = [](const ac2::OpContext& op) {
    return op.is("aten::mm") ? ac2::CheckpointPolicy::MUST_SAVE : ac2::CheckpointPolicy::PREFER_RECOMPUTE;
  };
  EXPECT_EQ(run_products(policy).backward.recomputed_ops, 1);
}

TEST_F(SelectiveTest, AReplayAsksNobody) {
  int asked = 0;
  const Stats stats = run_products([&](const OpContext&) {
    ++asked;
    return CheckpointPolicy::PREFER_RECOMPUTE;
  });
  EXPECT_EQ(stats.backward.recomputed_ops, 3);
  EXPECT_EQ(asked, 4);
}

TEST_F(SelectiveTest, AFunctionMayReturnABool) {
  ac2::Policy policy = [](const ac2::OpContext& op) { return op.is("aten::mm"); };
  EXPECT_EQ(run_products(policy).backward.recomputed_ops, 1);
}

TEST_F(SelectiveTest, AFunctionSeesTheArguments) {
  const at::Tensor wide = sample({4, 8}), tall = sample({8, 4});
  ac2::Policy policy = [](const ac2::OpContext& op) {
    return op.is("aten::mm") && op.inputs()[1].toTensor().size(1) > 4;
  };
  const auto fn = [&] { return x.mm(wide).sin().mm(tall).cos(); };
  expect_same_and_replays(
      [&] {
        PolicyScope scope(policy);
        watch(scope);
        return fn();
      },
      fn, {x, wide, tall}, 2);  // sin, and the product with tall
}

TEST_F(SelectiveTest, EverySecondProductIsSaved) {
  EXPECT_EQ(run_products(ac2::policies::every_nth(2, {"aten::mm"})).backward.recomputed_ops, 2);  // mm and sin
}

TEST_F(SelectiveTest, AFactoryCountsAnewInEveryRegion) {
  const auto make_policy_fn = [] { return [ops = 0](const ac2::OpContext&) mutable { return ops++ == 0; }; };
  ac2::Policy policy = ac2::Policy::factory(make_policy_fn);
  for (int region = 0; region < 2; ++region) EXPECT_EQ(run_products(policy).backward.recomputed_ops, 2);
}

TEST_F(SelectiveTest, ASavedResultThatIsOverwrittenIsCopiedFirst) {
  const auto fn = [&] {
    at::Tensor h = x.mm(w);
    at::Tensor y = (h + 1).cos();
    h.mul_(2);
    return y + h;
  };
  const Stats stats = expect_same(
      [&] {
        ac2::PolicyScope scope(ac2::policies::save_ops({"aten::mm"}));
        watch(scope);
        return fn();
      },
      fn, {x, w});
  EXPECT_EQ(stats.forward.copied_bytes, kTensorBytes);
  EXPECT_EQ(trace->stats().copied_bytes, kTensorBytes);
}

}  // namespace
}  // namespace ac2::test

// Ops that communicate: what they return is saved, and nobody looks at it before it has come. The ops here only count
// their calls: what several processes do is tested from Python (python/tests/test_distributed.py).
#include <gmock/gmock.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <atomic>
#include <optional>
#include <string>
#include <vector>

#include "ac2/names.h"
#include "ac2/op_scopes.h"
#include "ac2/policy.h"
#include "ac2/scope.h"
#include "tests/support/regions.h"
#include "tests/support/warnings.h"

namespace ac2::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::atomic<int> exchanges = 0;

// As all_to_all_single of one process.
at::Tensor exchange(const at::Tensor& x, const std::string& /*group_name*/) {
  ++exchanges;
  return x * 2;
}

at::Tensor strange(const at::Tensor& x, const std::string& /*group_name*/) {
  ++exchanges;
  return x * 3;
}

// In place, as all_reduce_.
at::Tensor exchange_in_place(const at::Tensor& x, const std::string& /*group_name*/) {
  ++exchanges;
  const at::NoGradGuard no_grad;
  x.detach().mul_(2);
  return x;
}

TORCH_LIBRARY_FRAGMENT(_c10d_functional, m) {
  m.def("ac2_exchange(Tensor x, str name) -> Tensor");
  m.def("ac2_exchange_(Tensor(a!) x, str name) -> Tensor(a!)");
}
TORCH_LIBRARY_IMPL(_c10d_functional, CPU, m) {
  m.impl("ac2_exchange", &exchange);
  m.impl("ac2_exchange_", &exchange_in_place);
}
TORCH_LIBRARY(ac2_collectives_test, m) {
  m.def("strange(Tensor x, str group_name) -> Tensor");
}
TORCH_LIBRARY_IMPL(ac2_collectives_test, CPU, m) {
  m.impl("strange", &strange);
}
at::Tensor call(const char* op, const at::Tensor& x) {
  return c10::Dispatcher::singleton()
      .findSchemaOrThrow(op, "")
      .typed<at::Tensor(const at::Tensor&, const std::string&)>()
      .call(x, "0");
}

// A collective as autograd has it: torch.distributed has its own functions for it. Here the gradient of x * 2.
class Exchange : public torch::autograd::Function<Exchange> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* /*context*/, const at::Tensor& x, const std::string& op) {
    const at::AutoDispatchBelowAutograd below;
    return call(op.c_str(), x);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* /*context*/,
                                                 torch::autograd::variable_list gradients) {
    return {gradients[0] * 2, at::Tensor()};
  }
};

class CollectivesTest : public CleanTest {
 protected:
  void SetUp() override {
    CleanTest::SetUp();
    exchanges = 0;
  }
};

// exp() needs its result, and sin() its argument: both come after the collective.
TensorFn after(const std::string& op) {
  return [op](const Tensors& in) { return Tensors{Exchange::apply(in[0].sin(), op).sin().exp()}; };
}

TEST_F(CollectivesTest, ACollectiveIsNotReplayedUnderAnyPolicy) {
  const auto callable = [](const OpContext&) { return CheckpointPolicy::PREFER_RECOMPUTE; };
  for (const Policy& policy : {Policy("recompute_all"), Policy("must_save_all"), Policy(callable)}) {
    for (const char* op : {"_c10d_functional::ac2_exchange", "ac2_collectives_test::strange"}) {
      exchanges = 0;
      expect_same_gradients(after(op), {sample({4, 3})}, policy);
      EXPECT_EQ(exchanges, 2) << op;  // once plain, once in the region
    }
  }
}

TEST_F(CollectivesTest, WhatACollectiveReturnsIsHeldWhileBackwardNeedsIt) {
  const at::Tensor x = sample({16});
  PolicyScope scope("recompute_all");
  at::Tensor result = after("_c10d_functional::ac2_exchange")({x})[0];
  EXPECT_EQ(scope.trace()->stats().saved_bytes, 2 * 16 * 4);  // x, and what was exchanged
  result.sum().backward();
  EXPECT_EQ(scope.trace()->stats().saved_bytes, 0);
}

// A value that autograd does not want, and no replay takes, dies with the program's reference.
TEST_F(CollectivesTest, ABufferOfACollectiveDiesWithTheProgramsReference) {
  const at::Tensor x = sample({16});
  PolicyScope scope("recompute_all");
  c10::weak_intrusive_ptr<c10::StorageImpl> buffer{c10::intrusive_ptr<c10::StorageImpl>()};
  {
    const at::NoGradGuard no_grad;
    const at::Tensor gathered = call("_c10d_functional::ac2_exchange", x.detach());
    buffer = gathered.storage().getWeakStorageImpl();
  }
  EXPECT_TRUE(buffer.expired());
}

TEST_F(CollectivesTest, TheUserMayHaveOneReplayed) {
  const at::Tensor x = sample({4, 3});
  {
    const PolicyScope scope("recompute_all");
    at::Tensor result;
    {
      const RecomputeScope recompute;
      result = after("_c10d_functional::ac2_exchange")({x})[0];
    }
    EXPECT_EQ(exchanges, 1);
    EXPECT_EQ(scope.trace()->stats().saved_bytes, 4 * 3 * 4);
    result.sum().backward();
  }
  EXPECT_EQ(exchanges, 2);
  const at::Tensor again = leaf_like(x);
  after("_c10d_functional::ac2_exchange")({again})[0].sum().backward();
  EXPECT_TRUE(same_bits(x.grad(), again.grad()));
}

TEST_F(CollectivesTest, OneThatIsReplayedUnderABudgetIsWarnedOf) {
  const std::vector<std::string> warnings = warnings_of([] {
    const PolicyScope scope({.memory_budget = 1 << 20});
    const RecomputeScope recompute;
    after("_c10d_functional::ac2_exchange")({sample({4, 3})})[0].sum().backward();
  });
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_THAT(warnings[0],
              AllOf(HasSubstr("_c10d_functional::ac2_exchange"), HasSubstr("wait for each other for ever")));
}

// Whether the program, or a thread of the collective's, still has the result may differ from process to process.
TEST_F(CollectivesTest, OneThatIsReplayedOnRequestIsReplayedWhoeverHasTheResult) {
  const at::Tensor x = sample({4, 3});
  at::Tensor kept;
  at::Tensor loss;
  {
    const PolicyScope scope("recompute_all");
    const RecomputeScope recompute;
    kept = Exchange::apply(x.sin(), "_c10d_functional::ac2_exchange");
    loss = kept.sin().sum();
  }
  loss.backward();
  EXPECT_EQ(exchanges, 2);
}

// A tag says RECOMPUTE of what was computed from it, which is dead.
TEST_F(CollectivesTest, ATagOnALaterResultReplaysNone) {
  const at::Tensor x = sample({4});
  {
    const PolicyScope scope([](const OpContext&) { return CheckpointPolicy::PREFER_SAVE; });
    at::Tensor result = Exchange::apply(x.sin(), "_c10d_functional::ac2_exchange").sin();
    tag_with_policy(result, CheckpointPolicy::PREFER_RECOMPUTE);
    result.exp().sum().backward();
  }
  EXPECT_EQ(exchanges, 1);
}

// The bytes may still be on their way when the op returns: a pack function, or a fingerprint, would read garbage.
TEST_F(CollectivesTest, NobodyLooksAtWhatACollectiveReturnsBeforeItIsUsed) {
  std::vector<std::string> packed;
  const SaveWithHooks hooks{[&](const at::Tensor& tensor) { return c10::IValue(tensor.clone()); },
                            [](const c10::IValue& value) { return value.toTensor(); }};
  const Policy packs = [&](const OpContext& op) -> PolicyDecision {
    if (op.is("_c10d_functional::ac2_exchange")) {
      packed.emplace_back(op.name());
      return SaveWithHooks{[](const at::Tensor&) -> c10::IValue {
                             ADD_FAILURE() << "packed";
                             return c10::IValue();
                           },
                           [](const c10::IValue&) { return at::Tensor(); }};
    }
    return hooks;
  };
  expect_same_gradients(after("_c10d_functional::ac2_exchange"), {sample({4})}, packs);
  EXPECT_EQ(packed.size(), 1);
  // In verify mode the bytes change after the op, as if they had come later.
  const at::Tensor x = sample({4});
  const PolicyScope scope([](const OpContext&) { return CheckpointPolicy::PREFER_RECOMPUTE; }, {.verify = true});
  const at::NoGradGuard no_grad;
  at::Tensor result = call("_c10d_functional::ac2_exchange", x.detach());
  *result.data_ptr<float>() = 1;
  EXPECT_NO_THROW(result.sin());
}

// A collective writes from another thread, and may do so between any two looks at what it has returned.
void arrive(const at::Tensor& result) {
  const DisableCheckpointing unseen;
  const at::NoGradGuard no_grad;
  result.detach().copy_(result.detach());
}

at::Tensor wait_for(const at::Tensor& result) {
  return c10::Dispatcher::singleton()
      .findSchemaOrThrow("_c10d_functional::wait_tensor", "")
      .typed<at::Tensor(const at::Tensor&)>()
      .call(result);
}

class ArrivalTest : public CollectivesTest, public testing::WithParamInterface<CheckpointPolicy> {};

TEST_P(ArrivalTest, AResultThatArrivesAfterItWasNamedIsWhatTheCollectiveReturned) {
  const at::Tensor factor = sample({4});
  at::Tensor product;
  const PolicyScope scope([](const OpContext& op) {
    return op.is("_c10d_functional::ac2_exchange") ? GetParam() : CheckpointPolicy::PREFER_RECOMPUTE;
  });
  {
    const at::Tensor result = call("_c10d_functional::ac2_exchange", sample({4}).detach());
    name_tensor(result, "result");
    arrive(result);
    product = result * factor;
    wait_for(result);
  }
  product.sum().backward();
  EXPECT_EQ(exchanges, GetParam() == CheckpointPolicy::MUST_RECOMPUTE ? 2 : 1);
}

TEST_P(ArrivalTest, AResultMayArriveBetweenTwoUsesThatComeBeforeTheWait) {
  const bool again = GetParam() == CheckpointPolicy::MUST_RECOMPUTE;
  const at::Tensor x = sample({4});
  const at::Tensor factor = sample({4});
  {
    const PolicyScope scope([](const OpContext& op) {
      return op.is("_c10d_functional::ac2_exchange") ? GetParam() : CheckpointPolicy::PREFER_RECOMPUTE;
    });
    at::Tensor product;
    {
      const at::Tensor result = call("_c10d_functional::ac2_exchange", x.detach().sin());
      product = result * factor;  // autograd saves the result
      arrive(result);
      product = result * product + result.view({2, 2}).flatten() * factor;
      wait_for(result);
    }
    product.sum().backward();
  }
  const at::Tensor result = x.detach().sin() * 2;
  EXPECT_TRUE(at::equal(factor.grad(), result * result + result));
  EXPECT_EQ(exchanges, again ? 2 : 1);
}
INSTANTIATE_TEST_SUITE_P(, ArrivalTest,
                         testing::Values(CheckpointPolicy::PREFER_RECOMPUTE, CheckpointPolicy::MUST_RECOMPUTE),
                         [](const auto& info) {
                           return info.param == CheckpointPolicy::MUST_RECOMPUTE ? "ReplayedOnRequest" : "Saved";
                         });

// Other bytes than those that were there when the collective returned.
void arrive_with(const at::Tensor& result, const at::Tensor& bytes) {
  const DisableCheckpointing unseen;
  const at::NoGradGuard no_grad;
  result.detach().copy_(bytes);
}

// Packs a copy, and counts.
SaveWithHooks packing(int& packs) {
  return {[&packs](const at::Tensor& tensor) {
            ++packs;
            return c10::IValue(tensor.clone());
          },
          [](const c10::IValue& value) { return value.toTensor(); }};
}

// Autograd saves the result before the wait. Its bytes come after that.
TEST_F(CollectivesTest, AResultThatATagOrANameHasPackedIsNotPackedBeforeTheWait) {
  for (const bool by_name : {false, true}) {
    const at::Tensor factor = sample({4}), bytes = constant({4});
    int packs = 0;
    {
      const Policy names = Policy("must_save_all").with_names([&](const NamedTensor&) -> std::optional<PolicyDecision> {
        return packing(packs);
      });
      const PolicyScope scope(by_name ? names : Policy("recompute_all"));
      at::Tensor product;
      {
        const at::Tensor result = call("_c10d_functional::ac2_exchange", sample({4}).detach());
        if (by_name) {
          name_tensor(result, "result");
        } else {
          tag_with_policy(result, packing(packs));
        }
        product = result * factor;
        EXPECT_EQ(packs, 0) << by_name;
        arrive_with(result, bytes);
        wait_for(result);
      }
      product.sum().backward();
    }
    EXPECT_TRUE(same_bits(factor.grad(), bytes)) << by_name;
  }
}

TEST_F(CollectivesTest, NoResultIsPackedBeforeTheWaitUnderAPolicyThatPacksAll) {
  for (const bool in_place : {false, true}) {
    const at::Tensor factor = sample({4}), bytes = constant({4});
    at::Tensor buffer = constant({4});
    int packs = 0;
    {
      const PolicyScope scope(Policy::constant(packing(packs)));
      at::Tensor result = call(in_place ? "_c10d_functional::ac2_exchange_" : "_c10d_functional::ac2_exchange", buffer);
      buffer.reset();
      at::Tensor product = result * factor;
      EXPECT_EQ(packs, 0) << in_place;
      arrive_with(result, bytes);
      wait_for(result);
      result.reset();
      product.sum().backward();
    }
    EXPECT_TRUE(same_bits(factor.grad(), bytes)) << in_place;
  }
}

TEST_F(CollectivesTest, AResultThatATagHasPackedIsPackedIfItIsSavedAfterTheWait) {
  const at::Tensor factor = sample({4}), bytes = constant({4});
  int packs = 0;
  const PolicyScope scope("recompute_all");
  at::Tensor product;
  {
    at::Tensor result = call("_c10d_functional::ac2_exchange", sample({4}).detach());
    arrive_with(result, bytes);
    result = wait_for(result);
    tag_with_policy(result, packing(packs));
    product = result * factor;
    EXPECT_EQ(packs, 1);
  }
  product.sum().backward();
  EXPECT_TRUE(same_bits(factor.grad(), bytes));
}

// The copy that a write makes necessary is made of what was there before the write, and not of what comes in its place.
TEST_F(CollectivesTest, WhatACollectiveOverwritesIsCopiedBeforeAndNotAfter) {
  const at::Tensor factor = sample({4}), before = constant({4}), bytes = constant({4});
  at::Tensor buffer = before.clone();
  const PolicyScope scope("recompute_all");
  at::Tensor product, second;
  {
    product = buffer * factor;  // autograd saves the buffer
    c10::Dispatcher::singleton()
        .findSchemaOrThrow("_c10d_functional::ac2_exchange_", "")
        .typed<at::Tensor(const at::Tensor&, const std::string&)>()
        .call(buffer, "0");
    EXPECT_EQ(scope.trace()->stats().copied_bytes, 4 * 4);
    second = buffer * factor;  // and once more, while the bytes are on their way
    EXPECT_EQ(scope.trace()->stats().copied_bytes, 4 * 4);
    arrive_with(buffer, bytes);
    wait_for(buffer);
    buffer.reset();
  }
  (product + second).sum().backward();
  EXPECT_TRUE(same_bits(factor.grad(), before + bytes));
}

TEST_F(CollectivesTest, AWriteAfterTheWaitIsSeen) {
  const at::Tensor factor = sample({4});
  const PolicyScope scope("recompute_all");
  const at::Tensor result = wait_for(call("_c10d_functional::ac2_exchange", sample({4}).detach()));
  const at::Tensor product = result * factor;
  arrive(result);
  EXPECT_THROW(product.sum().backward(), c10::Error);
}

}  // namespace
}  // namespace ac2::test

// ScopeOptions::verify: what it finds, what it names, and what it leaves alone.
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <atomic>
#include <cstdlib>

#include "ac2/plan.h"
#include "ac2/report.h"
#include "tests/support/regions.h"

namespace ac2::test {
namespace {

std::atomic<int> calls = 0;

// Another result each time.
at::Tensor drifting(const at::Tensor& x) {
  return x + ++calls;
}

// Says nothing of its write.
at::Tensor secretive(const at::Tensor& x) {
  x.mutable_data_ptr<float>()[0] = 7;
  return x * 2;
}

// The same, and says so.
at::Tensor open_about_it(at::Tensor x) {
  x.mutable_data_ptr<float>()[0] = 7;
  return x * 2;
}

TORCH_LIBRARY(ac2_verify_test, m) {
  m.def("drifting(Tensor x) -> Tensor");
  m.def("secretive(Tensor x, int unused=0) -> Tensor");
  m.def("open_about_it(Tensor(a!) x) -> Tensor");
}

TORCH_LIBRARY_IMPL(ac2_verify_test, CPU, m) {
  m.impl("drifting", drifting);
  m.impl("secretive", [](const at::Tensor& x, int64_t) { return secretive(x); });
  m.impl("open_about_it", open_about_it);
}

at::Tensor call(const char* name, at::Tensor x) {
  torch::jit::Stack stack{std::move(x)};
  const c10::OperatorHandle op = c10::Dispatcher::singleton().findSchemaOrThrow(name, "");
  if (op.schema().arguments().size() > 1) {
    stack.emplace_back(0);
  }
  op.callBoxed(stack);
  return stack.back().toTensor();
}

// A gradient of `name` that plain autograd takes too: its own replay is not needed for it, but its result is.
at::Tensor through(const char* name, const at::Tensor& x) {
  return (call(name, x.detach()) * x).cos();
}

const ScopeOptions kVerify{.verify = true};

class VerifyTest : public CleanTest {
 protected:
  void TearDown() override {
    unsetenv("AC2_VERIFY");
    CleanTest::TearDown();
  }
};

TEST_F(VerifyTest, ExactProgramsPassAndReplayAsManyOps) {
  at::Tensor x = sample({4, 4});
  const auto forward = [](const at::Tensor& x) {
    at::Tensor a = x.sin();
    a.select(0, 1).mul_(2);
    at::Tensor b = at::dropout(a, 0.5, true).cos();
    b.t().add_(1);
    return std::get<0>(b.exp().max(1)).cumsum(0).tanh();
  };
  at::Tensor y;
  at::manual_seed(3);
  at::Tensor expected = gradient_of(forward(x), x);
  int64_t replays[2];
  for (const bool verify : {false, true}) {
    at::manual_seed(3);
    std::shared_ptr<const Trace> trace;
    {
      PolicyScope scope("recompute_all", {.verify = verify});
      trace = scope.trace();
      y = forward(x);
    }
    EXPECT_TRUE(same_bits(gradient_of(y, x), expected));
    replays[verify] = trace->stats().recomputed_ops;
  }
  EXPECT_GT(replays[0], 0);
  EXPECT_EQ(replays[0], replays[1]);
}

TEST_F(VerifyTest, SaysHowManyReplayedResultsItHasCompared) {
  for (const char* policy : {"recompute_all", "must_save_all"}) {
    for (const bool verify : {false, true}) {
      at::Tensor x = sample({4}), y;
      std::shared_ptr<const Trace> trace;
      {
        PolicyScope scope(policy, {.verify = verify});
        trace = scope.trace();
        y = x.sin().cos().exp();  // cos needs what sin returned; exp needs its own result, which lives
      }
      gradient_of(y, x);
      const TraceStats stats = trace->stats();
      EXPECT_EQ(stats.verified_results, verify ? stats.recomputed_ops : 0) << policy;
      const std::string text = explain(*trace);
      const std::string said = stats.recomputed_ops > 0 ? "Verify mode has compared 1 replayed result with forward's."
                                                        : "Verify mode has compared nothing so far";
      EXPECT_EQ(text.find(said) != std::string::npos, verify) << text;
    }
  }
}

TEST_F(VerifyTest, NamesAnOpWhoseReplayGivesOtherBits) {
  at::Tensor x = sample({4});
  at::Tensor y;
  {
    PolicyScope scope("recompute_all", kVerify);
    x.sin();
    y = through("ac2_verify_test::drifting", x);
  }
  expect_error([&] { gradient_of(y, x); },
               {"Verify", "ac2_verify_test::drifting (op 2 of its region)", "sizes [4]", "deterministic", "save_ops"});
  y.reset();
  expect_nothing_left();
  expect_next_region_works();
}

TEST_F(VerifyTest, WithoutItNobodyLooks) {
  at::Tensor x = sample({4});
  at::Tensor y;
  {
    PolicyScope scope("recompute_all");
    y = through("ac2_verify_test::drifting", x);
  }
  EXPECT_TRUE(gradient_of(y, x).defined());
}

TEST_F(VerifyTest, ASavedResultIsNotReplayedSoNothingIsWrongWithIt) {
  at::Tensor x = sample({4});
  at::Tensor y;
  {
    PolicyScope scope(saving({"ac2_verify_test::drifting"}), kVerify);
    y = through("ac2_verify_test::drifting", x);
  }
  EXPECT_TRUE(gradient_of(y, x).defined());
}

TEST_F(VerifyTest, NamesAnOpThatWritesWithoutSayingSoAndItsArgument) {
  at::Tensor x = sample({4});
  {
    PolicyScope scope("recompute_all", kVerify);
    at::Tensor a = x.sin();
    expect_error([&] { call("ac2_verify_test::secretive", a.detach()); },
                 {"Verify", "ac2_verify_test::secretive (op 2 of its region)", "argument 'x'", "Tensor(a!)"});
  }
  expect_next_region_works();
}

TEST_F(VerifyTest, AnOpThatSaysWhatItWritesPasses) {
  at::Tensor x = sample({4});
  at::Tensor y;
  {
    PolicyScope scope("recompute_all", kVerify);
    at::Tensor a = x.detach().sin();
    call("ac2_verify_test::open_about_it", a);
    y = (a * x).cos();
  }
  at::Tensor a = x.detach().sin();
  call("ac2_verify_test::open_about_it", a);
  EXPECT_TRUE(same_bits(gradient_of(y, x), gradient_of((a * x).cos(), x)));
}

TEST_F(VerifyTest, FindsAWriteThatNoDispatcherSawWhereTheValueIsUsedNext) {
  at::Tensor x = sample({4});
  {
    PolicyScope scope("recompute_all", kVerify);
    at::Tensor a = x.sin();
    a.mutable_data_ptr<float>()[2] = 5;
    expect_error([&] { a.cos(); },
                 {"Verify", "the result of aten::sin (op 0 of its region)", "data_ptr", "tag_with_policy"});
  }
  expect_next_region_works();
}

TEST_F(VerifyTest, FindsSuchAWriteWhereAutogradSavesTheValueToo) {
  struct SaveIt : torch::autograd::Function<SaveIt> {
    static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, const at::Tensor& saved) {
      context->save_for_backward({saved});
      return x.view(x.sizes());
    }
    static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                   torch::autograd::variable_list gradients) {
      return {gradients[0] * context->get_saved_variables()[0], at::Tensor()};
    }
  };
  at::Tensor x = sample({4});
  {
    PolicyScope scope("recompute_all", kVerify);
    at::Tensor a = x.detach().sin();
    a.mutable_data_ptr<float>()[2] = 5;
    expect_error([&] { SaveIt::apply(x, a); }, {"Verify", "the result of aten::sin"});
  }
}

TEST_F(VerifyTest, AWriteFromOutsideIntoWhatIsHeldByReferenceIsFoundByTheReplayThatReadsIt) {
  at::Tensor x = sample({1000});
  at::Tensor y;
  at::Tensor factor = constant({1000});
  {
    PolicyScope scope("recompute_all", kVerify);
    y = (x * factor).cos();
  }
  factor.mutable_data_ptr<float>()[3] += 1;  // none of those that a replay looks at by itself
  expect_error([&] { gradient_of(y, x); }, {"Verify", "replaying aten::mul", "data_ptr"});
}

TEST_F(VerifyTest, WhatEmptyReturnsMayBeFilledByAnyone) {
  at::Tensor x = sample({4});
  at::Tensor y;
  {
    PolicyScope scope("recompute_all", kVerify);
    at::Tensor a = at::empty({4});
    for (int i = 0; i < 4; ++i) a.mutable_data_ptr<float>()[i] = static_cast<float>(i);
    y = ((x + a).cos() * at::empty_like(x).fill_(2)).cos();
  }
  EXPECT_TRUE(gradient_of(y, x).defined());
}

TEST_F(VerifyTest, WhatAnOpLeavesUndefinedOnPurposeIsNotCompared) {
  at::Tensor logits = sample({6, 2, 5});
  at::Tensor targets = at::ones({2, 3}, at::kLong);
  const auto forward = [&] {
    return at::ctc_loss(logits.log_softmax(-1), targets, at::IntArrayRef{6, 3}, at::IntArrayRef{2, 1});
  };
  at::Tensor y;
  {
    PolicyScope scope("recompute_all", kVerify);
    y = forward();
  }
  EXPECT_TRUE(same_bits(gradient_of(y, logits), gradient_of(forward(), logits)));
}

TEST_F(VerifyTest, WhatALossyPackGivesBackIsNotComparedNorWhatFollowsFromIt) {
  at::Tensor x = sample({4});
  at::Tensor y;
  const SaveWithHooks half{[](const at::Tensor& t) { return c10::IValue(t.to(at::kHalf)); },
                           [](const c10::IValue& v) { return v.toTensor().to(at::kFloat); }};
  {
    PolicyScope scope(
        [half](const OpContext& op) -> PolicyDecision {
          if (op.is("aten::sin")) return half;
          return CheckpointPolicy::PREFER_RECOMPUTE;
        },
        kVerify);
    y = x.sin().mul(3).cos().cos();
  }
  EXPECT_TRUE(gradient_of(y, x).defined());
}

TEST_F(VerifyTest, AnInnerScopeTurnsItOnForTheRestOfTheRegion) {
  at::Tensor x = sample({4});
  at::Tensor before, after;
  {
    PolicyScope outer("recompute_all");
    before = through("ac2_verify_test::drifting", x);
    { PolicyScope inner("recompute_all", kVerify); }
    after = through("ac2_verify_test::drifting", x);
  }
  EXPECT_TRUE(gradient_of(before, x).defined());
  expect_error([&] { gradient_of(after, x); }, {"Verify", "ac2_verify_test::drifting"});
}

TEST_F(VerifyTest, TheEnvironmentTurnsItOnForEveryRegion) {
  setenv("AC2_VERIFY", "1", 1);
  at::Tensor x = sample({4});
  at::Tensor y;
  {
    PolicyScope scope("recompute_all");
    y = through("ac2_verify_test::drifting", x);
  }
  expect_error([&] { gradient_of(y, x); }, {"Verify", "ac2_verify_test::drifting"});
  setenv("AC2_VERIFY", "0", 1);
  {
    PolicyScope scope("recompute_all");
    y = through("ac2_verify_test::drifting", x);
  }
  EXPECT_TRUE(gradient_of(y, x).defined());
}

TEST_F(VerifyTest, TheEnvironmentTurnsItOnForTheStepThatAPlannerRecords) {
  setenv("AC2_VERIFY", "1", 1);
  at::Tensor x = sample({64});
  const auto step = [&] { through("ac2_verify_test::drifting", x).sum().backward(); };
  expect_error([&] { StepPlanner planner(step, {.modelled_costs = true, .recording_budget = 300}); },
               {"Verify", "ac2_verify_test::drifting"});
}

TEST_F(VerifyTest, TheEnvironmentVariableIsZeroOrOne) {
  setenv("AC2_VERIFY", "yes", 1);
  expect_error([] { PolicyScope scope("recompute_all"); }, {"AC2_VERIFY", "\"yes\"", "expected 1"});
  EXPECT_FALSE(is_checkpoint_enabled());
}

}  // namespace
}  // namespace ac2::test

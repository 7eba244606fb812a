// Whatever throws, wherever: the error arrives, nothing is left, and the next region works.
#include <torch/library.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/regions.h"

namespace ac2::test {
namespace {

using ErrorsTest = CleanTest;
using CheckpointPolicy::MUST_SAVE;
using CheckpointPolicy::PREFER_RECOMPUTE;

// The exception that `fn` throws, of whatever type.
std::string thrown_by(const std::function<void()>& fn) {
  try {
    fn();
  } catch (const std::exception& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

bool contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

TEST_F(ErrorsTest, UserCodeThatThrowsLeavesTheThreadClean) {
  at::Tensor x = sample({4});
  std::string message = thrown_by([&] {
    PolicyScope outer("recompute_all");
    PolicyScope inner("must_save_all");
    DisableCheckpointing disable;
    at::Tensor y = x.sin().cos();
    throw std::runtime_error("user code");
  });
  EXPECT_EQ(message, "user code");
  expect_nothing_left();
  expect_next_region_works();
}

TEST_F(ErrorsTest, AppliedFunctionsErrorsPassThrough) {
  auto fn = [](const at::Tensor& x) -> at::Tensor {
    x.sin();
    throw std::out_of_range("applied");
  };
  EXPECT_THROW(apply_ac_policy_fn(fn, "recompute_all", sample({4})), std::out_of_range);
  expect_next_region_works();
}

TEST_F(ErrorsTest, AKernelThatThrowsIsAsIfItHadNotRun) {
  at::Tensor x = sample({4, 4});
  at::Tensor y;
  std::shared_ptr<const Trace> trace;
  {
    PolicyScope scope("recompute_all");
    trace = scope.trace();
    at::Tensor s = x.sin();
    expect_error([&] { s.mm(at::ones({3, 3})); }, {"mat1"});
    y = s.cos();
  }
  EXPECT_TRUE(same_bits(gradient_of(y, x), gradient_of(x.sin().cos(), x)));
  EXPECT_EQ(trace->stats().recomputed_ops, 1);
  expect_next_region_works();
}

TEST_F(ErrorsTest, AWriteThatThrowsMayHaveWrittenSoWhatIsThereIsKept) {
  at::Tensor x = sample({4, 4});
  at::Tensor y;
  std::shared_ptr<const Trace> trace;
  {
    PolicyScope scope("recompute_all");
    trace = scope.trace();
    at::Tensor s = x.sin();
    expect_error([&] { s.add_(at::ones({4, 5})); }, {"size"});
    y = s.cos();
  }
  EXPECT_TRUE(same_bits(gradient_of(y, x), gradient_of(x.sin().cos(), x)));
  EXPECT_EQ(trace->stats().recomputed_ops, 0);
}

// Found by random program 27110.
TEST_F(ErrorsTest, AChangeOfSizesThatThrowsIsNoNewVersion) {
  at::Tensor x = sample({2, 2, 2});
  at::Tensor factor = at::ones({2, 2, 2});
  at::Tensor y;
  {
    PolicyScope scope("recompute_all");
    y = (x * factor).cos();
    expect_error([&] { factor.t_(); }, {"t_"});
  }
  EXPECT_TRUE(same_bits(gradient_of(y, x), gradient_of((x * factor).cos(), x)));
}

TEST_F(ErrorsTest, APolicyThatThrowsReachesTheUserAndTheRegionGoesOn) {
  at::Tensor x = sample({4});
  at::Tensor y;
  int asked = 0;
  {
    PolicyScope scope([&](const OpContext& op) {
      ++asked;
      if (op.is("aten::exp")) throw std::runtime_error("policy");
      return PREFER_RECOMPUTE;
    });
    at::Tensor s = x.sin();
    EXPECT_TRUE(contains(thrown_by([&] { s.exp(); }), "policy"));
    y = s.cos();
  }
  EXPECT_EQ(asked, 3);
  EXPECT_TRUE(same_bits(gradient_of(y, x), gradient_of(x.sin().cos(), x)));
  expect_next_region_works();
}

TEST_F(ErrorsTest, AFactoryThatThrowsOpensNoRegion) {
  Policy policy = Policy::factory([]() -> PolicyFn { throw std::runtime_error("factory"); });
  EXPECT_TRUE(contains(thrown_by([&] { PolicyScope scope(policy); }), "factory"));
  expect_next_region_works();
}

Policy hooks_for_sin(SaveWithHooks hooks) {
  return [decision = PolicyDecision(std::move(hooks))](const OpContext& op) {
    return op.is("aten::sin") ? decision : PREFER_RECOMPUTE;
  };
}

TEST_F(ErrorsTest, APackThatThrowsReachesTheUserFromTheOpThatNeededTheValue) {
  at::Tensor x = sample({4});
  bool fail = true;
  at::Tensor y;
  {
    PolicyScope scope(hooks_for_sin({[&](const at::Tensor& t) {
                                       if (fail) throw std::runtime_error("pack");
                                       return c10::IValue(t.clone());
                                     },
                                     [](const c10::IValue& v) { return v.toTensor(); }}));
    at::Tensor s = x.sin();
    EXPECT_TRUE(contains(thrown_by([&] { s.cos(); }), "pack"));
    EXPECT_TRUE(is_checkpoint_enabled());
    fail = false;
    y = s.cos();
  }
  EXPECT_TRUE(same_bits(gradient_of(y, x), gradient_of(x.sin().cos(), x)));
  expect_next_region_works();
}

TEST_F(ErrorsTest, AnUnpackThatThrowsReachesTheUserFromBackwardWhichMayBeTriedAgain) {
  at::Tensor x = sample({4});
  bool fail = true;
  at::Tensor y = apply_ac_policy_fn([&] { return x.sin().cos(); },
                                    hooks_for_sin({[](const at::Tensor& t) { return c10::IValue(t.clone()); },
                                                   [&](const c10::IValue& v) {
                                                     if (fail) throw std::runtime_error("unpack");
                                                     return v.toTensor();
                                                   }}));
  EXPECT_TRUE(contains(thrown_by([&] { gradient_of(y, x, /*retain_graph=*/true); }), "unpack"));
  expect_next_region_works();
  fail = false;
  EXPECT_TRUE(same_bits(gradient_of(y, x), gradient_of(x.sin().cos(), x)));
}

TEST_F(ErrorsTest, WhatUnpackReturnsMustBeWhatWasPacked) {
  at::Tensor x = sample({2, 3});
  struct Wrong {
    const char* found;
    const char* expected;
    at::Tensor (*unpack)(const at::Tensor&);
  };
  const std::vector<Wrong> wrongs = {
      {"[3, 2]", "[2, 3]", [](const at::Tensor& t) { return t.t(); }},
      {"[6]", "[2, 3]", [](const at::Tensor& t) { return t.flatten(); }},
      {"Double", "Float", [](const at::Tensor& t) { return t.to(at::kDouble); }},
      {"meta", "cpu", [](const at::Tensor& t) { return t.to(at::kMeta); }},
      {"undefined", "[2, 3]", [](const at::Tensor&) { return at::Tensor(); }},
  };
  for (const Wrong& wrong : wrongs) {
    SCOPED_TRACE(wrong.found);
    at::Tensor y =
        apply_ac_policy_fn([&] { return x.sin().cos(); },
                           hooks_for_sin({[](const at::Tensor& t) { return c10::IValue(t.clone()); },
                                          [&](const c10::IValue& v) { return wrong.unpack(v.toTensor()); }}));
    expect_error([&] { gradient_of(y, x); }, {"aten::sin", wrong.found, wrong.expected});
  }
  expect_next_region_works();
}

// A kernel that fails in its first replay.
bool fail_in_replay = false;

at::Tensor fragile(const at::Tensor& x) {
  if (is_recomputing() && std::exchange(fail_in_replay, false)) TORCH_CHECK(false, "fragile kernel");
  return x.sin();
}

TORCH_LIBRARY(ac2_errors_test, m) {
  m.def("fragile(Tensor x) -> Tensor");
}
TORCH_LIBRARY_IMPL(ac2_errors_test, CPU, m) {
  m.impl("fragile", fragile);
}

TEST_F(ErrorsTest, AKernelThatThrowsInReplayReachesTheUserAndMayBeTriedAgain) {
  auto op = c10::Dispatcher::singleton()
                .findSchemaOrThrow("ac2_errors_test::fragile", "")
                .typed<at::Tensor(const at::Tensor&)>();
  at::Tensor x = sample({4}), w = constant({4});
  auto fn = [&](const at::Tensor& x) { return (x.sin() * op.call(w.cos())).cos(); };
  at::Tensor expected = gradient_of(fn(x), x);
  std::shared_ptr<const Trace> trace;
  at::Tensor y;
  {
    PolicyScope scope("recompute_all");
    trace = scope.trace();
    y = fn(x);
  }
  fail_in_replay = true;
  expect_error([&] { gradient_of(y, x, /*retain_graph=*/true); }, {"fragile kernel"});
  EXPECT_FALSE(is_recomputing());
  EXPECT_EQ(trace->stats().recomputed_bytes, 0);
  expect_next_region_works();
  EXPECT_TRUE(same_bits(gradient_of(y, x, /*retain_graph=*/true), expected));
  EXPECT_TRUE(same_bits(gradient_of(y, x), expected));
  EXPECT_EQ(trace->stats().recomputed_bytes, 0);
}

TEST_F(ErrorsTest, AHookThatThrowsInBackwardLeavesNothingReplayed) {
  at::Tensor x = sample({4});
  at::Tensor y;
  std::shared_ptr<const Trace> trace;
  bool fail = true;
  {
    PolicyScope scope("recompute_all");
    trace = scope.trace();
    at::Tensor s = x.sin().sin();
    s.register_hook([&](const at::Tensor& g) {
      if (fail) throw std::runtime_error("hook");
      return g;
    });
    y = s.sin().sin();
  }
  EXPECT_TRUE(contains(thrown_by([&] { gradient_of(y, x, /*retain_graph=*/true); }), "hook"));
  EXPECT_EQ(trace->stats().recomputed_bytes, 0);
  fail = false;
  EXPECT_TRUE(same_bits(gradient_of(y, x), gradient_of(x.sin().sin().sin().sin(), x)));
}

TEST_F(ErrorsTest, AnInferenceTensorCannotBeSavedByAPolicyEither) {
  // Whether autograd or a policy asks for it, the words are PyTorch's or ours.
  at::Tensor x = sample({4});
  at::Tensor constant_input;
  {
    c10::InferenceMode guard;
    constant_input = at::ones({4});
  }
  PolicyScope scope("must_save_all");
  expect_error([&] { x* constant_input; }, {"nference tensors"});
}

}  // namespace
}  // namespace ac2::test

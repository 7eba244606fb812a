// Another library was behind ac2's dispatch key first: both do what they do alone.
#include "tests/support/key_taker.h"

#include <torch/library.h>

#include <memory>
#include <optional>
#include <tuple>

#include "ac2/scope.h"
#include "ac2/trace.h"
#include "tests/support/regions.h"

namespace ac2::test {
namespace {

class SharedKeyTest : public CleanTest {
 protected:
  void SetUp() override {
    CleanTest::SetUp();
    calls_before_ = fallback_calls();
  }
  int calls_of_other() const { return fallback_calls() - calls_before_; }

 private:
  int calls_before_ = 0;
};

TEST_F(SharedKeyTest, ARegionRecordsAndReplaysAsWithAKeyOfItsOwn) {
  expect_same_gradients_and_replays([](const Tensors& in) { return Tensors{(in[0].sin() * in[0].exp()).cos().sum()}; },
                                    {sample({4})}, 3);
  EXPECT_EQ(calls_of_other(), 0);
}

TEST_F(SharedKeyTest, DrawsAndWritesThroughViewsAreReplayed) {
  const Stats stats = expect_same_gradients(
      [](const Tensors& in) {
        at::Tensor a = at::dropout(in[0].sin(), 0.5, /*train=*/true);
        a.view({2, 2}).select(0, 1).mul_(in[1]);
        return Tensors{(a * a).cos()};
      },
      {sample({4}), constant({2})});
  EXPECT_GT(stats.backward.recomputed_ops, 0);
  EXPECT_EQ(calls_of_other(), 0);
}

TEST_F(SharedKeyTest, DrawsInsideAReplayedOpAreThoseOfForward) {
  const Stats stats = expect_same_gradients(
      [](const Tensors& in) { return Tensors{std::get<0>(at::native_dropout(in[0].sin(), 0.5, true)).cos()}; },
      {sample({16})});
  EXPECT_GT(stats.backward.recomputed_ops, 0);
}

TEST_F(SharedKeyTest, WhatTakesATensorOfTheOtherLibraryIsItsOwn) {
  const at::Tensor theirs = tensor_with_key(constant({4}));
  const PolicyScope scope("recompute_all");
  const at::Tensor sum = theirs + constant({4}).sin();  // sin is ours
  EXPECT_EQ(calls_of_other(), 1);
  EXPECT_EQ(scope.trace()->stats().recorded_ops, 1);
  const at::Tensor joined = at::cat({constant({4}), theirs});
  EXPECT_EQ(calls_of_other(), 2);
  EXPECT_EQ(scope.trace()->stats().recorded_ops, 1);
}

TEST_F(SharedKeyTest, AutogradGetsBackTheTensorOfTheOtherLibraryThatItSaved) {
  const at::Tensor theirs = tensor_with_key(constant({4}));
  const auto calls_in_backward = [&](bool in_region) {
    const at::Tensor x = sample({4});
    at::Tensor y;
    {
      std::optional<PolicyScope> scope;
      if (in_region) scope.emplace("recompute_all");
      y = x * theirs;
    }
    const int before = fallback_calls();
    EXPECT_TRUE(same_bits(gradient_of(y, x), theirs.detach() * gradient_of(x * 1, x)));
    return fallback_calls() - before;
  };
  EXPECT_GT(calls_in_backward(false), 0);
  EXPECT_EQ(calls_in_backward(true), calls_in_backward(false));
}

TEST_F(SharedKeyTest, InTheOtherLibrarysModeAllOpsAreItsOwn) {
  const at::Tensor x = constant({4});
  {
    const TakersMode mode;
    const PolicyScope scope("recompute_all");
    const at::Tensor y = x.sin();
    EXPECT_EQ(calls_of_other(), 1);
    EXPECT_EQ(scope.trace()->stats().recorded_ops, 0);
    {
      const DisableCheckpointing pause;
      const at::Tensor z = x.cos();
    }
    EXPECT_EQ(calls_of_other(), 2);
  }
  const PolicyScope scope("recompute_all");
  const at::Tensor y = x.sin();
  EXPECT_EQ(calls_of_other(), 2);
  EXPECT_EQ(scope.trace()->stats().recorded_ops, 1);
}

TEST_F(SharedKeyTest, TheOtherLibrarysModeOutlivesARegion) {
  const TakersMode mode;
  { const PolicyScope scope("recompute_all"); }
  EXPECT_TRUE(TakersMode::is_on());
  { const DisableCheckpointing pause; }
  EXPECT_TRUE(TakersMode::is_on());
}

TEST_F(SharedKeyTest, ARegionLeavesTheKeyOff) {
  { const PolicyScope scope("recompute_all"); }
  EXPECT_FALSE(TakersMode::is_on());
}

at::Tensor twice(const at::Tensor& x) {
  return x * 2;
}

// A library of ops that is loaded when this is made.
std::unique_ptr<torch::Library> load_library(const char* name) {
  auto library = std::make_unique<torch::Library>(torch::Library::DEF, name, std::nullopt, __FILE__, __LINE__);
  library->def("twice(Tensor x) -> Tensor");
  library->impl("twice", torch::dispatch(c10::DispatchKey::CPU, &twice));
  return library;
}

at::Tensor call_twice(const char* op, const at::Tensor& x) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(op, "").typed<at::Tensor(const at::Tensor&)>().call(x);
}

TEST_F(SharedKeyTest, OpsThatAreLoadedLaterAreRecorded) {
  { const PolicyScope scope("recompute_all"); }  // from here on each operator has a kernel of ac2
  const auto library = load_library("ac2_loaded_later");
  expect_same_gradients_and_replays(
      [](const Tensors& in) { return Tensors{in[0] * call_twice("ac2_loaded_later::twice", in[1])}; },
      {sample({4}), constant({4})}, 1);
  EXPECT_EQ(calls_of_other(), 0);
}

TEST_F(SharedKeyTest, OpsThatAreLoadedInAnOpenRegionAreRecordedAfterItsNextOp) {
  const PolicyScope scope("recompute_all");
  const auto library = load_library("ac2_loaded_inside");
  const at::Tensor first = call_twice("ac2_loaded_inside::twice", constant({4}));
  EXPECT_EQ(calls_of_other(), 1);
  EXPECT_EQ(scope.trace()->stats().recorded_ops, 0);
  const at::Tensor x = first.sin();
  const at::Tensor second = call_twice("ac2_loaded_inside::twice", x);
  EXPECT_EQ(calls_of_other(), 1);
  EXPECT_EQ(scope.trace()->stats().recorded_ops, 2);
}

TEST_F(SharedKeyTest, ALibraryThatIsLoadedAgainIsRecorded) {
  for (int i = 0; i < 2; ++i) {
    const auto library = load_library("ac2_loaded_again");
    const PolicyScope scope("recompute_all");
    const at::Tensor y = call_twice("ac2_loaded_again::twice", constant({4}));
    EXPECT_EQ(scope.trace()->stats().recorded_ops, 1);
  }
  EXPECT_EQ(calls_of_other(), 0);
}

}  // namespace
}  // namespace ac2::test

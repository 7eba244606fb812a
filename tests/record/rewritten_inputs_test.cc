// Code that no dispatcher sees rewrites a tensor that a region took from outside, through its pointer and without
// ac2::expose(), before backward computes again what was computed from it.
#include <c10/util/Exception.h>
#include <gmock/gmock.h>

#include <functional>
#include <vector>

#include "ac2/expose.h"
#include "tests/support/regions.h"
#include "tests/support/ways.h"

namespace ac2::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using RewrittenInputsTest = CleanTest;

void negate(const at::Tensor& x) {
  float* values = x.mutable_data_ptr<float>();
  for (int64_t i = 0; i < x.numel(); ++i) {
    values[i] = -values[i];
  }
}

TEST_F(RewrittenInputsTest, AReplayThatWouldReadOtherBytesIsAnErrorThatNamesTheOpAndTheCure) {
  const at::Tensor w = sample({24});
  const at::Tensor x = sample({24}).detach();
  at::Tensor out;
  {
    const PolicyScope scope("recompute_all");
    out = (x * w).sin();
  }
  negate(x);
  EXPECT_THAT(error_of([&] { gradient_of(out, w); }),
              AllOf(HasSubstr("has been modified by an inplace operation"), HasSubstr("of sizes [24] and dtype Float"),
                    HasSubstr("aten::mul.Tensor"), HasSubstr("data_ptr()"), HasSubstr("ac2::expose(tensor)"),
                    HasSubstr("SinBackward0 reads the result of")));
  out = at::Tensor();
}

TEST_F(RewrittenInputsTest, NoPolicyComputesFromOtherBytesWithoutAnError) {
  const at::Tensor w = sample({24});
  const at::Tensor data = sample({24}).detach();
  // sin() saves what plain autograd saves before the write; the product's own input is read as it is then.
  const auto loss = [&](const at::Tensor& x) { return (at::tanh(x) * w).sin(); };
  at::Tensor x = data.clone();
  at::Tensor expected = loss(x);
  negate(x);
  expected = gradient_of(expected, w);
  for (const Way& way : all_ways(/*verify=*/false)) {
    x = data.clone();
    at::Tensor out;
    {
      const PolicyScope scope(way.policy, way.options);
      out = loss(x);
    }
    negate(x);
    try {
      expect_same_bits({gradient_of(out, w)}, {expected}, way.name);
    } catch (const c10::Error& error) {
      EXPECT_THAT(error.what_without_backtrace(), HasSubstr("ac2::expose(tensor)")) << way.name;
    }
    out = at::Tensor();
  }
}

TEST_F(RewrittenInputsTest, ASavedResultThatIsRewrittenAfterAnOpHasReadItIsAnErrorToo) {
  const at::Tensor x = sample({24});
  at::Tensor out;
  {
    const PolicyScope scope(saving({"aten::tanh"}));
    const at::Tensor y = at::tanh(x);
    out = (y * 3).sin();
    negate(y);
  }
  EXPECT_THAT(error_of([&] { gradient_of(out, x); }),
              AllOf(HasSubstr("the result of aten::tanh"), HasSubstr("ac2::expose(tensor)")));
  out = at::Tensor();
}

TEST_F(RewrittenInputsTest, EachOpIsComputedAgainFromWhatItHasReadItself) {
  const at::Tensor w = sample({24});
  const at::Tensor x = sample({24}).detach();
  const auto loss = [&](const at::Tensor& buffer) {
    const at::Tensor first = buffer.sum();  // not needed by backward
    negate(buffer);
    return (buffer * w).sin() * 2 + first;
  };
  const at::Tensor expected = gradient_of(loss(x.clone()), w);
  at::Tensor out;
  {
    const PolicyScope scope("recompute_all");
    out = loss(x);
  }
  expect_same_bits({gradient_of(out, w)}, {expected}, "written between two reads");
}

TEST_F(RewrittenInputsTest, WritesToPartsOfTheStorageThatTheOpHasNotReadAreNoError) {
  const at::Tensor w = sample({24});
  const at::Tensor ring = sample({2, 24}).detach();
  const at::Tensor columns = sample({24, 2}).detach();
  const auto loss = [&] { return (ring[0] * w).sin() * (columns.select(1, 0) * w).cos(); };
  const at::Tensor expected = gradient_of(loss(), w);
  at::Tensor out;
  {
    const PolicyScope scope("recompute_all");
    out = loss();
  }
  negate(ring[1]);
  for (int64_t i = 0; i < 24; ++i) {
    columns.mutable_data_ptr<float>()[2 * i + 1] = 0;
  }
  expect_same_bits({gradient_of(out, w)}, {expected}, "others' slots");
}

TEST_F(RewrittenInputsTest, AnOpThatWritesAfterwardsDoesNotHideTheWrite) {
  const at::Tensor w = sample({24});
  const std::vector<std::function<void(at::Tensor&)>> writes{
      [](at::Tensor& x) { x.mul_(2); },
      [](at::Tensor& x) { x.slice(0, 0, 3).zero_(); },
      [](at::Tensor& x) { at::mul_out(x, x, x); },
      [](at::Tensor& x) {
        const PolicyScope later("recompute_all");
        x.sub_(1);
      },
  };
  for (const auto& write : writes) {
    at::Tensor x = sample({24}).detach();
    at::Tensor out;
    {
      const PolicyScope scope("recompute_all");
      out = (at::tanh(x) * w).sin();
    }
    negate(x);
    write(x);
    expect_error([&] { gradient_of(out, w); }, {"ac2::expose(tensor)"});
    out = at::Tensor();
  }
}

TEST_F(RewrittenInputsTest, ALazyCloneThatMovesToMemoryOfItsOwnIsNoWrite) {
  const at::Tensor w = sample({24});
  const at::Tensor x = sample({24}).detach();
  const auto loss = [&](const at::Tensor& of) { return (at::tanh(of) * w).sin(); };
  const at::Tensor expected = gradient_of(loss(x.clone()), w);
  at::Tensor out;
  {
    const PolicyScope scope("recompute_all");
    out = loss(x);
  }
  const at::Tensor clone = at::_lazy_clone(x);
  expect_same_bits({gradient_of(out, w)}, {expected}, "cloned after the region");
  {
    const PolicyScope scope("recompute_all");
    out = loss(clone);
  }
  clone.mutable_data_ptr();
  expect_same_bits({gradient_of(out, w)}, {expected}, "moved, not written to");
  const at::Tensor other = at::_lazy_clone(x);
  {
    const PolicyScope scope("recompute_all");
    out = loss(other);
  }
  negate(other);
  expect_error([&] { gradient_of(out, w); }, {"ac2::expose(tensor)"});
  out = at::Tensor();
}

TEST_F(RewrittenInputsTest, WhatIsWrittenAfterExposeIsCopiedBefore) {
  const at::Tensor w = sample({24});
  const at::Tensor x = sample({24}).detach();
  const auto loss = [&](const at::Tensor& buffer) { return (at::tanh(buffer) * w).sin(); };
  const at::Tensor expected = gradient_of(loss(x.clone()), w);
  at::Tensor out;
  {
    const PolicyScope scope("recompute_all");
    out = loss(x);
  }
  expose(x);
  negate(x);
  expect_same_bits({gradient_of(out, w)}, {expected}, "exposed");
}

}  // namespace
}  // namespace ac2::test

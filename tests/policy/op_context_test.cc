// The calls of a policy, and the facts that the policy sees.
#include <ATen/core/dispatch/Dispatcher.h>

#include <string>
#include <vector>

#include "tests/support/regions.h"

namespace ac2::test {
namespace {

using OpContextTest = CleanTest;

constexpr CheckpointPolicy kRecompute = CheckpointPolicy::PREFER_RECOMPUTE;

// A policy that appends "name.overload@index" to `asked`.
Policy listing(std::vector<std::string>& asked) {
  return [&asked](const OpContext& op) {
    std::string entry(op.name());
    if (!op.overload().empty()) entry += "." + std::string(op.overload());
    asked.push_back(entry + "@" + std::to_string(op.index()));
    return kRecompute;
  };
}

// Runs `fn` under a policy that calls `look` on every op.
void look_at_ops(const std::function<void()>& fn, const std::function<void(const OpContext&)>& look) {
  PolicyScope scope([&look](const OpContext& op) {
    look(op);
    return kRecompute;
  });
  fn();
}

TEST_F(OpContextTest, NamesEveryOpAndCountsViewsWithoutAskingAboutThem) {
  at::Tensor x = sample({4, 4});
  std::vector<std::string> asked;
  PolicyScope scope(listing(asked));
  at::Tensor y = x.sin();                      // 0
  at::Tensor transposed = y.t();               // 1
  at::Tensor row = y.select(0, 1);             // 2
  at::Tensor part = row.slice(0, 0, 4);        // 3
  at::Tensor sum = at::add(transposed, part);  // 4
  sum.mm(sum.detach());                        // 6, after detach
  EXPECT_EQ(scope.trace()->stats().recorded_ops, 7);
  EXPECT_EQ(asked, (std::vector<std::string>{"aten::sin@0", "aten::add.Tensor@4", "aten::mm@6"}));
}

TEST_F(OpContextTest, OpsWithoutATensorResultAreCountedButNotAskedAbout) {
  at::Tensor x = constant({1});
  std::vector<std::string> asked;
  PolicyScope scope(listing(asked));
  x.item();  // aten::_local_scalar_dense returns a number
  x.exp();
  EXPECT_EQ(scope.trace()->stats().recorded_ops, 2);
  EXPECT_EQ(asked, std::vector<std::string>{"aten::exp@1"});
}

TEST_F(OpContextTest, TheIndexRunsThroughInnerScopesAndRestartsWithTheNextRegion) {
  at::Tensor x = constant({2});
  std::vector<std::string> outer, inner;
  for (int region = 0; region < 2; ++region) {
    PolicyScope outer_scope(listing(outer));
    x.sin();
    {
      PolicyScope inner_scope(listing(inner));
      x.cos();
    }
    x.tan();
  }
  const std::vector<std::string> each = {"aten::sin@0", "aten::cos@1", "aten::tan@2"};
  std::vector<std::string> twice = each;
  twice.insert(twice.end(), each.begin(), each.end());
  EXPECT_EQ(outer, twice);
  EXPECT_EQ(inner, (std::vector<std::string>{"aten::cos@1", "aten::cos@1"}));
}

TEST_F(OpContextTest, MatchesAnyOverloadOrTheNamedOne) {
  at::Tensor x = constant({2});
  int64_t asked = 0;
  look_at_ops([&] { x.add(x); },
              [&](const OpContext& op) {
                ++asked;
                EXPECT_TRUE(op.is("aten::add"));
                EXPECT_TRUE(op.is("aten::add.Tensor"));
                EXPECT_FALSE(op.is("aten::add.Scalar"));
                EXPECT_FALSE(op.is("aten::add."));
                EXPECT_FALSE(op.is("aten::add_"));
                EXPECT_FALSE(op.is("aten::addmm"));
                EXPECT_FALSE(op.is("aten::ad"));
                EXPECT_FALSE(op.is("add"));
                EXPECT_FALSE(op.is(""));
                EXPECT_EQ(op.op().schema().name(), "aten::add");
              });
  look_at_ops([&] { x.sin(); },
              [&](const OpContext& op) {
                ++asked;
                EXPECT_EQ(op.overload(), "");
                EXPECT_TRUE(op.is("aten::sin"));
                EXPECT_FALSE(op.is("aten::sin.out"));
              });
  EXPECT_EQ(asked, 2);
}

TEST_F(OpContextTest, ShowsOneInputPerArgumentOfTheSchemaKeywordsIncluded) {
  at::Tensor x = constant({2, 3}), w = constant({2, 3});
  int64_t asked = 0;
  look_at_ops([&] { at::add(x, w, 3); },
              [&](const OpContext& op) {
                ++asked;
                ASSERT_EQ(op.inputs().size(), 3u);  // self, other, *, alpha
                EXPECT_TRUE(op.inputs()[0].toTensor().is_same(x));
                EXPECT_TRUE(op.inputs()[1].toTensor().is_same(w));
                EXPECT_EQ(op.inputs()[2].toScalar().toLong(), 3);
              });
  look_at_ops([&] { x.sum({1}, /*keepdim=*/true, at::kDouble); },
              [&](const OpContext& op) {
                ++asked;
                ASSERT_EQ(op.inputs().size(), 4u);  // self, dim, keepdim, *, dtype
                EXPECT_EQ(op.inputs()[1].toIntVector(), std::vector<int64_t>{1});
                EXPECT_TRUE(op.inputs()[2].toBool());
                EXPECT_EQ(op.inputs()[3].toScalarType(), at::kDouble);
              });
  look_at_ops(
      [&] {
        at::cat({x, w}, 1);
      },
      [&](const OpContext& op) {
        ++asked;
        ASSERT_EQ(op.inputs().size(), 2u);
        EXPECT_EQ(op.inputs()[0].toTensorVector().size(), 2u);
      });
  look_at_ops([&] { at::clamp(x, std::nullopt, w); },
              [&](const OpContext& op) {
                ++asked;
                ASSERT_EQ(op.inputs().size(), 3u);
                EXPECT_TRUE(op.inputs()[1].isNone());
              });
  EXPECT_EQ(asked, 4);
}

TEST_F(OpContextTest, ShowsOneOutputPerReturnOfTheSchema) {
  at::Tensor x = constant({4, 4});
  int64_t asked = 0;
  at::Tensor values, indices;
  look_at_ops([&] { std::tie(values, indices) = x.topk(2); },
              [&](const OpContext& op) {
                ++asked;
                ASSERT_EQ(op.outputs().size(), 2u);
                EXPECT_EQ(op.outputs()[0].toTensor().scalar_type(), at::kFloat);
                EXPECT_EQ(op.outputs()[1].toTensor().scalar_type(), at::kLong);
              });
  look_at_ops(
      [&] {
        at::_foreach_sin({x, x});
      },
      [&](const OpContext& op) {
        ++asked;
        ASSERT_EQ(op.outputs().size(), 1u);
        EXPECT_EQ(op.outputs()[0].toTensorVector().size(), 2u);
      });
  EXPECT_EQ(asked, 2);
}

TEST_F(OpContextTest, ContentsAreThoseAfterTheOp) {
  at::Tensor x = at::ones({2});
  int64_t asked = 0;
  look_at_ops([&] { x.add_(2); },
              [&](const OpContext& op) {
                ++asked;
                EXPECT_EQ(op.inputs()[0].toTensor().const_data_ptr<float>()[1], 3.0F);
                EXPECT_EQ(op.outputs()[0].toTensor().const_data_ptr<float>()[1], 3.0F);
              });
  EXPECT_EQ(asked, 1);
}

TEST_F(OpContextTest, APolicyMayRunOpsOfItsOwn) {
  // Decides by a look at the values; what it runs for that is neither recorded nor asked about.
  int64_t asked = 0;
  Policy keep_positive = [&asked](const OpContext& op) {
    ++asked;
    return op.outputs()[0].toTensor().gt(0).all().item<bool>();
  };
  at::Tensor x = sample({4});
  at::Tensor y;
  std::shared_ptr<const Trace> trace;
  {
    PolicyScope scope(keep_positive);
    trace = scope.trace();
    y = x.sigmoid().sin();  // sigmoid is positive, and both need its result
  }
  EXPECT_EQ(asked, 2);
  EXPECT_EQ(trace->stats().recorded_ops, 2);
  EXPECT_TRUE(same_bits(gradient_of(y, x), gradient_of(x.sigmoid().sin(), x)));
  EXPECT_EQ(trace->stats().recomputed_ops, 0);
}

TEST_F(OpContextTest, APolicyByOperatorIsAskedOncePerOperatorAndRegion) {
  std::vector<std::string> asked;
  Policy policy = Policy::by_operator([&asked](const c10::OperatorHandle& op) {
    asked.push_back(toString(op.operator_name()));
    return kRecompute;
  });
  at::Tensor x = constant({2});
  for (int region = 0; region < 2; ++region) {
    PolicyScope scope(policy);
    x.sin().sin().add(x).add(1).sin();
  }
  // add.Tensor and add.Scalar are two operators; order within a region is that of first use.
  const std::vector<std::string> each = {"aten::sin", "aten::add.Tensor", "aten::add.Scalar"};
  std::vector<std::string> twice = each;
  twice.insert(twice.end(), each.begin(), each.end());
  EXPECT_EQ(asked, twice);
}

TEST_F(OpContextTest, TheOuterPolicyIsAskedBeforeTheInner) {
  std::string order;
  at::Tensor x = constant({2});
  PolicyScope outer([&](const OpContext&) {
    order += "o";
    return kRecompute;
  });
  PolicyScope inner([&](const OpContext&) {
    order += "i";
    return kRecompute;
  });
  x.sin().cos();
  EXPECT_EQ(order, "oioi");
}

TEST_F(OpContextTest, BackwardAsksNothing) {
  std::vector<std::string> asked;
  at::Tensor x = sample({2});
  at::Tensor y;
  {
    PolicyScope scope(listing(asked));
    y = x.sin().cos();
  }
  gradient_of(y, x);
  EXPECT_EQ(asked, (std::vector<std::string>{"aten::sin@0", "aten::cos@1"}));
}

}  // namespace
}  // namespace ac2::test

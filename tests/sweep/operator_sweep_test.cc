// Every function of the tables in tests/sweep/, in regions of every kind: outputs, gradients and generator states are
// bitwise those of plain LibTorch.
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <torch/version.h>

#include <cctype>
#include <set>
#include <string>

#include "tests/sweep/case.h"
#include "tests/sweep/exclusions.h"
#include "tests/sweep/filling_allocator.h"
#include "tests/sweep/runner.h"

namespace ac2::test::sweep {
namespace {

class SweepTest : public CleanTest {
 protected:
  void SetUp() override {
    // Where the order of a sum depends on the threads at hand, plain LibTorch differs from itself.
    at::set_num_threads(1);
    FillingAllocator::install();
    CleanTest::SetUp();
  }
};

class OperatorSweepTest : public SweepTest, public ::testing::WithParamInterface<Case> {
 protected:
  // Ops of the function itself that are replayed at least, when `clones` others may be.
  static void expect_replays(const Case& row, const Comparison& both, bool held, size_t clones) {
    const int64_t replayed = both.region.stats.backward.recomputed_ops;
    if (held) {
      EXPECT_EQ(replayed, 0);
    } else if (row.has(kNothingToReplay)) {
      EXPECT_LE(replayed, static_cast<int64_t>(clones));
    } else {
      EXPECT_GT(replayed, static_cast<int64_t>(clones));
    }
  }
};

TEST_P(OperatorSweepTest, IsRecomputedFromInputsOfOutside) {
  const Case& row = GetParam();
  const Comparison both = expect_same(row, {.inputs_from_outside = true}, "recompute_all");
  EXPECT_EQ(both.plain.error, "");
  EXPECT_TRUE(both.plain.differentiable) << "no result requires a gradient";
  bool any = false, nonzero = false;
  for (const at::Tensor& gradient : both.plain.gradients) {
    any |= gradient.defined();
    nonzero |= gradient.defined() && gradient.to_dense().ne(0).any().item<bool>();
  }
  EXPECT_TRUE(any) << "no input has a gradient";
  EXPECT_EQ(nonzero, !row.has(kZeroGradient));
  if (!row.has(kWritesAnInput)) expect_replays(row, both, row.has(kHeld), 0);
}

TEST_P(OperatorSweepTest, IsRecomputedTogetherWithItsInputs) {
  const Case& row = GetParam();
  const Comparison both = expect_same(row, {}, "recompute_all");
  EXPECT_EQ(both.plain.error, "");
  if (row.has(kHeld)) {
    EXPECT_EQ(both.region.stats.backward.recomputed_ops, 0);
  } else {
    EXPECT_GT(both.region.stats.backward.recomputed_ops, 0);
  }
  if (row.has(kWritesAnInput)) expect_replays(row, both, false, both.inputs);
}

TEST_P(OperatorSweepTest, IsRecomputedWhileItsResultsAreAlive) {
  const Plan plan{.inputs_from_outside = true, .results_alive = true};
  const int64_t gone =
      expect_same(GetParam(), {.inputs_from_outside = true}, "recompute_all").region.stats.backward.recomputed_ops;
  EXPECT_LE(expect_same(GetParam(), plan, "recompute_all").region.stats.backward.recomputed_ops, gone);
}

TEST_P(OperatorSweepTest, IsSaved) {
  EXPECT_EQ(expect_same(GetParam(), {}, "must_save_all").region.stats.backward.recomputed_ops, 0);
}

TEST_P(OperatorSweepTest, IsSavedOrRecomputedAtRandom) {
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    SCOPED_TRACE(seed);
    expect_same(GetParam(), {}, picking_at_random(seed));
  }
}

TEST_P(OperatorSweepTest, InsideNoGrad) {
  const Case& row = GetParam();
  const bool writes = row.has(kWritesAnInput);
  const Comparison both =
      expect_same(row, {.inputs_from_outside = !writes, .stretch = Stretch::kNoGrad}, "recompute_all");
  EXPECT_EQ(both.plain.error, "");
  EXPECT_TRUE(both.plain.differentiable);
  expect_replays(row, both, row.has(kHeld) || row.has(kHeldWithoutGradients), writes ? both.inputs : 0);
  expect_same(row, {.stretch = Stretch::kNoGrad}, picking_at_random(5));
}

TEST_P(OperatorSweepTest, InAnInferenceStretchOfARegion) {
  const Plan plan{.inputs_from_outside = true, .stretch = Stretch::kInference};
  const Comparison both = expect_same(GetParam(), plan, "recompute_all");
  EXPECT_EQ(both.plain.error.empty(), !GetParam().has(kNoInferenceStretch)) << both.plain.error;
}

TEST_P(OperatorSweepTest, InInferenceModeHoldsNothing) {
  const c10::InferenceMode guard;
  const Comparison both = expect_same(GetParam(), {.backward = Backward::kNone}, "recompute_all");
  EXPECT_EQ(both.plain.error, "");
  EXPECT_GT(both.region.stats.forward.recorded_ops, 0);
  EXPECT_EQ(both.region.stats.forward.saved_bytes, 0);
  EXPECT_EQ(both.region.stats.forward.live_nodes, 0);
}

TEST_P(OperatorSweepTest, WithBackwardInsideTheRegion) {
  expect_same(GetParam(), {.backward_inside = true}, "recompute_all");
  expect_same(GetParam(), {.backward_inside = true}, picking_at_random(6));
}

TEST_P(OperatorSweepTest, TwiceWithRetainGraph) {
  const Plan once, twice{.backward = Backward::kTwice};
  const Stats first = expect_same(GetParam(), once, "recompute_all").region.stats;
  const Stats both = expect_same(GetParam(), twice, "recompute_all").region.stats;
  EXPECT_EQ(both.backward.recomputed_ops, 2 * first.backward.recomputed_ops);
  expect_same(GetParam(), twice, picking_at_random(7));
}

TEST_P(OperatorSweepTest, WithCreateGraph) {
  for (const bool inside : {false, true}) {
    const Plan plan{.backward = Backward::kSecond, .backward_inside = inside};
    const std::string error = expect_same(GetParam(), plan, "recompute_all").plain.error;
    const bool lacks_it = GetParam().has(kNoSecondDerivative) ||
                          (GetParam().has(kNoSecondDerivativeBefore12) && TORCH_VERSION_MINOR < 12) ||
                          (GetParam().has(kNoSecondDerivativeBefore14) && TORCH_VERSION_MINOR < 14);
    EXPECT_EQ(error.empty(), !lacks_it) << error;
    expect_same(GetParam(), plan, picking_at_random(8));
  }
}

std::string test_name(const ::testing::TestParamInfo<Case>& info) {
  std::string name;
  for (const char* c = info.param.name; *c != '\0'; ++c) {
    if (*c == '/') {
      name += "__";
    } else if (*c != ':') {
      name += *c;
    } else if (name.back() != '_') {
      name += '_';
    }
  }
  return name;
}

INSTANTIATE_TEST_SUITE_P(Of, OperatorSweepTest, ::testing::ValuesIn(all_cases()), test_name);

using OperatorSweepTableTest = SweepTest;

TEST_F(OperatorSweepTableTest, HasAtLeast600FunctionsAndEachRowOnce) {
  std::set<std::string> functions, names;
  for (const Case& row : all_cases()) {
    functions.insert(base_of(row));
    EXPECT_TRUE(names.insert(row.name).second) << row.name << " is there twice";
  }
  EXPECT_GE(functions.size(), 600U);
  RecordProperty("functions", static_cast<int>(functions.size()));
  RecordProperty("rows", static_cast<int>(names.size()));
}

// A function may be made of others. These are the operators that regions have seen, overloads counted once.
TEST_F(OperatorSweepTableTest, ReachesAtLeast400Operators) {
  std::set<std::string> operators;
  const Policy policy = [&operators](const OpContext& op) {
    operators.emplace(op.name());
    return CheckpointPolicy::PREFER_RECOMPUTE;
  };
  for (const Case& row : all_cases()) run(row, row.inputs(), {.backward = Backward::kNone}, &policy);
  EXPECT_GE(operators.size(), 400U);
  RecordProperty("operators", static_cast<int>(operators.size()));
}

class ExclusionTest : public SweepTest, public ::testing::WithParamInterface<Exclusion> {};

TEST_P(ExclusionTest, IsStillJustified) {
  const Exclusion& exclusion = GetParam();
  const Case row{exclusion.name, exclusion.inputs, exclusion.fn};
  const Tensors inputs = row.inputs();
  if (TORCH_VERSION_MINOR > exclusion.newest) {
    expect_same(row, {}, "recompute_all");
    expect_same(row, {}, picking_at_random(8));
    return;
  }
  const Result first = run(row, inputs, {}, nullptr);
  if (exclusion.because == Because::kNeedsNoGradient) {
    EXPECT_EQ(first.error, "");
    EXPECT_FALSE(first.differentiable);
    return;
  }
  if (exclusion.because == Because::kThrows) {
    EXPECT_NE(first.error.find(exclusion.phrase), std::string::npos) << '"' << first.error << '"';
    return;
  }
  bool differs = false;
  for (int i = 0; i < 20 && !differs; ++i) {
    const Result again = run(row, inputs, {}, nullptr);
    for (size_t k = 0; k < first.outputs.size(); ++k) differs |= !same_bits(again.outputs[k], first.outputs[k]);
  }
  EXPECT_TRUE(differs);
}

INSTANTIATE_TEST_SUITE_P(Of, ExclusionTest, ::testing::ValuesIn(exclusions()), [](const auto& info) {
  std::string name;
  for (const char* c = info.param.name; *c != '\0'; ++c) name += std::isalnum(*c) != 0 ? *c : '_';
  return name;
});

}  // namespace
}  // namespace ac2::test::sweep

// The rules that the library's is compared with, one victim at a time, and whole steps under them.
#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <vector>

#include "absl/types/span.h"
#include "ac2/internal/eviction/evictor.h"
#include "benchmarks/simulator/other_rule.h"
#include "benchmarks/simulator/step_simulator.h"

namespace ac2::internal {
namespace {

constexpr OtherRuleName kAll[] = {OtherRuleName::kDtr, OtherRuleName::kDtrClasses, OtherRuleName::kDtrLocal,
                                  OtherRuleName::kLru, OtherRuleName::kLargest};

// A program whose values a rule chooses from.
class OtherRulesTest : public ::testing::Test {
 protected:
  void use(OtherRuleName name) { rule_ = make_other_rule(name, evictor_); }

  ValueId run(double cost, int64_t bytes, absl::Span<const ValueId> inputs) {
    for (const ValueId input : inputs) {
      rule_->used(input);
    }
    evictor_.ran(cost);
    const ValueId value = evictor_.add_result(evictor_.add_node(cost, inputs), bytes, Retention::kPreferSave);
    evictor_.add_hook(value);
    come(value);
    rule_->made(value, cost);
    return value;
  }
  void come(ValueId value) {
    evictor_.set_place(value, Place::kHeld);
    rule_->came(value);
  }
  void leave(ValueId value) {
    evictor_.set_place(value, Place::kNowhere);
    rule_->left(value);
  }
  // Lets time pass, beside which the times of the last uses do not differ.
  void wait() { evictor_.ran(1e9); }

  Evictor evictor_{{.budget = 1000}};
  const ValueId input_ = evictor_.add_outside(10, Place::kHeld);
  std::unique_ptr<OtherRule> rule_;
};

TEST_F(OtherRulesTest, NothingToDropIsNoVictimUnderAnyRule) {
  for (const OtherRuleName name : kAll) {
    use(name);
    EXPECT_EQ(rule_->next_victim(), kNoId);
    const ValueId pinned = run(10, 100, {input_});
    evictor_.pin(pinned);
    const ValueId empty = run(10, 0, {input_});
    EXPECT_EQ(rule_->next_victim(), kNoId);
    evictor_.unpin(pinned);
    EXPECT_EQ(rule_->next_victim(), pinned);
    leave(pinned);
    EXPECT_EQ(rule_->next_victim(), kNoId);
    leave(empty);
  }
}

TEST_F(OtherRulesTest, OfEqualValuesTheOldestIsTheVictimWhateverCameBackWhen) {
  use(OtherRuleName::kLargest);
  const ValueId first = run(10, 100, {input_});
  run(10, 100, {input_});
  leave(first);
  come(first);
  EXPECT_EQ(rule_->next_victim(), first);
}

TEST_F(OtherRulesTest, LruNamesTheValueWhoseLastUseIsLongestAgo) {
  use(OtherRuleName::kLru);
  const ValueId used = run(10, 100, {input_});
  const ValueId unused = run(10, 1, {input_});
  wait();
  run(10, 100, {used});
  EXPECT_EQ(rule_->next_victim(), unused);
}

TEST_F(OtherRulesTest, LargestNamesTheValueWithTheMostBytes) {
  use(OtherRuleName::kLargest);
  run(1, 100, {input_});
  const ValueId large = run(1000, 101, {input_});
  EXPECT_EQ(rule_->next_victim(), large);
}

TEST_F(OtherRulesTest, LocalWeighsCostAgainstBytesAndTime) {
  use(OtherRuleName::kDtrLocal);
  run(100, 100, {input_});
  const ValueId cheap = run(10, 11, {input_});
  wait();
  EXPECT_EQ(rule_->next_victim(), cheap);
  // A view that must be made again makes it dearer.
  rule_->made(cheap, 10);
  wait();
  EXPECT_NE(rule_->next_victim(), cheap);
  // A value that was used just now goes last.
  const ValueId young = run(1, 1000, {input_});
  EXPECT_NE(rule_->next_victim(), young);
}

TEST_F(OtherRulesTest, DtrCountsEvictedValuesAboveAndBelowButNotBeside) {
  for (const OtherRuleName name : {OtherRuleName::kDtr, OtherRuleName::kDtrClasses}) {
    use(name);
    const ValueId above = run(30, 100, {input_});
    const ValueId middle = run(10, 100, {above});
    const ValueId below = run(30, 100, {middle});
    const ValueId sibling = run(1000, 100, {above});
    const ValueId other = run(65, 100, {input_});
    leave(above);
    leave(below);
    wait();
    // 10 + 30 + 30 for the one in the middle, 65 for the other; the sibling takes 1030.
    EXPECT_EQ(rule_->next_victim(), other);
    come(below);
    wait();
    EXPECT_EQ(rule_->next_victim(), below) << "30, with nothing evicted beside it";
    leave(below);
    come(above);
    wait();
    EXPECT_EQ(rule_->next_victim(), above) << "30";
    evictor_.pin(above);
    EXPECT_EQ(rule_->next_victim(), middle) << "10 + 30";
    evictor_.unpin(above);
    for (const ValueId value : {above, middle, sibling, other}) {
      leave(value);
    }
  }
}

TEST_F(OtherRulesTest, DtrFollowsChainsUpAndDownAndDoesNotTurnBack) {
  use(OtherRuleName::kDtr);
  const ValueId top = run(1, 100, {input_});
  const ValueId left = run(1, 100, {top});
  const ValueId right = run(500, 100, {top});
  const ValueId low = run(1, 100, {left});
  const ValueId other = run(100, 100, {input_});
  leave(top);
  leave(left);
  leave(right);
  wait();
  EXPECT_EQ(rule_->next_victim(), low) << "1 + 1 + 1: the value on the right is not needed for this one";
  leave(low);
  EXPECT_EQ(rule_->next_victim(), other);
}

TEST_F(OtherRulesTest, ClassesStayMergedWhenTheValueBetweenThemComesBack) {
  use(OtherRuleName::kDtrClasses);
  const ValueId above = run(500, 100, {input_});
  const ValueId middle = run(1, 100, {above});
  const ValueId below = run(1, 100, {middle});
  const ValueId last = run(1, 100, {below});
  const ValueId other = run(100, 100, {input_});
  leave(above);
  leave(middle);
  leave(below);
  come(middle);
  evictor_.pin(middle);
  wait();
  // 1 + 1 by the neighbourhood, but 1 + 501 by the class.
  EXPECT_EQ(rule_->next_victim(), other);
  use(OtherRuleName::kDtr);
  for (const ValueId value : {last, other}) {
    rule_->came(value);
    rule_->made(value, evictor_.graph().node(evictor_.graph().value(value).producer).cost);
  }
  rule_->made(above, 500);
  rule_->made(below, 1);
  wait();
  EXPECT_EQ(rule_->next_victim(), last);
}

// --- whole steps -----------------------------------------------------------------------------------------------------

// Ops whose results are each the next value, by their bytes. No views.
class Step {
 public:
  Step() { outside(); }

  uint32_t run(double cost, int64_t bytes, const std::vector<uint32_t>& inputs) {
    const auto op = static_cast<uint32_t>(step_.ops.size());
    const auto value = static_cast<uint32_t>(step_.values.size());
    step_.values.push_back({bytes, false});
    step_.tensors.push_back({value, op, kNoId});
    step_.ops.push_back({"op", cost, inputs, {value}});
    step_.events.push_back({RecordedStep::Event::kRuns, op});
    return value;
  }
  void release(uint32_t value) { step_.events.push_back({RecordedStep::Event::kReleased, value}); }
  const RecordedStep& done(const std::vector<uint32_t>& alive) {
    step_.alive_at_end = alive;
    return step_;
  }

 private:
  void outside() {
    step_.values.push_back({0, true});
    step_.tensors.push_back({0, kNoId, kNoId});
    step_.events.push_back({RecordedStep::Event::kAppears, 0});
  }

  RecordedStep step_;
};

TEST(OtherRuleSimulationTest, WithoutABudgetAStepCostsWhatItCostsUnderEveryRule) {
  Step step;
  const uint32_t a = step.run(10, 100, {0});
  const uint32_t b = step.run(10, 100, {a});
  step.release(a);
  const uint32_t c = step.run(10, 50, {b});
  for (const OtherRuleName name : kAll) {
    const StepResult result = simulate(step.done({b, c}), {.other_rule = name});
    EXPECT_EQ(result.outcome, StepResult::kCompleted);
    EXPECT_EQ(result.cost, 30);
    EXPECT_EQ(result.peak_bytes, 200);
    EXPECT_EQ(result.evictions, 0);
  }
}

TEST(OtherRuleSimulationTest, ABudgetIsKeptUnderEveryRule) {
  Step step;
  std::vector<uint32_t> forward = {0};
  for (int i = 0; i < 40; ++i) {
    forward.push_back(step.run(10, 10, {forward.back()}));
  }
  uint32_t last = forward.back();
  for (int i = 39; i > 0; --i) {
    const uint32_t gradient = step.run(10, 10, {last, forward[i]});
    step.release(last);
    last = gradient;
  }
  for (const OtherRuleName name : kAll) {
    const StepResult result = simulate(step.done({last}), {.budget = 200, .other_rule = name});
    EXPECT_EQ(result.outcome, StepResult::kCompleted);
    EXPECT_LE(result.peak_bytes, 200);
    EXPECT_GT(result.evictions, 0);
    EXPECT_EQ(result.cost, 790 + 10 * static_cast<double>(result.replayed.size()));
  }
}

TEST(OtherRuleSimulationTest, AReleasedValueIsDroppedAtOnceAlthoughOneThatIsEvictedNeedsIt) {
  Step step;
  const uint32_t a = step.run(10, 100, {0});
  const uint32_t b = step.run(1, 110, {a});
  const uint32_t c = step.run(1000, 100, {0});  // b, the largest, goes
  step.release(c);
  step.release(a);
  const uint32_t d = step.run(1000, 0, {b});  // b comes back by way of a
  const RecordedStep& recorded = step.done({b, d});
  const StepResult other = simulate(recorded, {.budget = 220, .other_rule = OtherRuleName::kLargest});
  EXPECT_EQ(other.outcome, StepResult::kCompleted);
  EXPECT_EQ(other.replayed, (std::vector<uint32_t>{0, 1}));
  // The library keeps a, from which b is to be computed.
  EXPECT_EQ(simulate(recorded, {.budget = 220}).replayed, std::vector<uint32_t>{1});
}

TEST(OtherRuleSimulationTest, AnotherRuleKnowsNoStepAndNoCopies) {
  Step step;
  const uint32_t a = step.run(10, 100, {0});
  const RecordedStep& recorded = step.done({a});
  const auto with = [](SimulatorOptions options) {
    options.other_rule = OtherRuleName::kDtr;
    return options;
  };
  StepStore store;
  EXPECT_THROW(simulate(recorded, with({.step_known = true})), std::logic_error);
  EXPECT_THROW(simulate(recorded, with({.bias = {1, 1}})), std::logic_error);
  EXPECT_THROW(simulate(recorded, with({.store = &store})), std::logic_error);
  EXPECT_THROW(simulate(recorded, with({.link_bytes_per_ns = 1})), std::logic_error);
}

}  // namespace
}  // namespace ac2::internal

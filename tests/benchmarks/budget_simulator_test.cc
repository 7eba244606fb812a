// Small traces, written here, through the reader and the simulator; and the program's own messages.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ac2/internal/eviction/evictor.h"
#include "benchmarks/dtr_trace.h"
#include "benchmarks/simulator/bytes_at_once.h"
#include "benchmarks/simulator/rule_moves.h"
#include "benchmarks/simulator/rule_search.h"
#include "benchmarks/simulator/step_attempts.h"
#include "benchmarks/simulator/step_foresight.h"
#include "benchmarks/simulator/step_simulator.h"
#include "tests/support/run_program.h"

namespace ac2 {
namespace {

using internal::kNoId;
using internal::RecordedStep;
using internal::simulate;
using internal::StepResult;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string quoted(const std::vector<std::string>& names) {
  return names.empty() ? "" : absl::StrCat("\"", absl::StrJoin(names, "\",\""), "\"");
}

// Writes a trace line by line.
class Trace {
 public:
  Trace() { annotate("START"); }

  Trace& line(const std::string& text) {
    text_ += text + "\n";
    return *this;
  }
  Trace& annotate(const std::string& name) {
    return line(absl::StrCat(R"({"INSTRUCTION":"ANNOTATE","ANNOTATION":")", name, "\"}"));
  }
  Trace& memory(const std::string& name, int64_t bytes) {
    return line(absl::StrCat(R"({"INSTRUCTION":"MEMORY","NAME":")", name, R"(","MEMORY":")", bytes, "\"}"));
  }
  Trace& constant(const std::string& name, int64_t bytes) {
    return line(absl::StrCat(R"({"INSTRUCTION":"CONSTANT","NAME":")", name, "\"}")).memory(name, bytes);
  }
  struct Result {
    std::string name;
    int64_t bytes = 0;
    int alias = -1;
  };
  Trace& call(int64_t time, const std::vector<std::string>& arguments, const std::vector<Result>& results) {
    std::vector<std::string> names;
    for (const Result& result : results) {
      names.push_back(result.name);
    }
    line(absl::StrCat(R"({"INSTRUCTION":"CALL","NAME":"op","ARGS":[)", quoted(arguments), R"(],"RESULT":[)",
                      quoted(names), R"(],"TIME":")", time, "\"}"));
    for (const Result& result : results) {
      memory(result.name, result.bytes);
      line(absl::StrCat(R"({"INSTRUCTION":"ALIAS","NAME":")", result.name, R"(","ALIAS":")", result.alias, "\"}"));
    }
    return *this;
  }
  Trace& mutate(int64_t time, const std::vector<std::string>& arguments, const std::vector<int>& written) {
    return line(absl::StrCat(R"({"INSTRUCTION":"MUTATE","NAME":"op_","ARGS":[)", quoted(arguments), R"(],"MUTATE":[)",
                             absl::StrJoin(written, ","), R"(],"TIME":")", time, "\"}"));
  }
  Trace& copy(const std::string& to, const std::string& from) {
    return line(absl::StrCat(R"({"INSTRUCTION":"COPY","DST":")", to, R"(","SRC":")", from, "\"}"));
  }
  Trace& copy_from(const std::string& to, const std::string& from) {
    return line(absl::StrCat(R"({"INSTRUCTION":"COPY_FROM","DST":")", to, R"(","SRC":")", from, "\"}"));
  }
  Trace& release(const std::string& name) {
    return line(absl::StrCat(R"({"INSTRUCTION":"RELEASE","NAME":")", name, "\"}"));
  }

  const std::string& text() const { return text_; }
  RecordedStep read() const {
    std::istringstream lines(text_);
    absl::StatusOr<RecordedStep> step = benchmarks::read_dtr_trace(lines, "trace");
    EXPECT_TRUE(step.ok()) << step.status();
    return step.ok() ? *step : RecordedStep();
  }
  std::string error() const {
    std::istringstream lines(text_);
    const absl::StatusOr<RecordedStep> step = benchmarks::read_dtr_trace(lines, "trace");
    EXPECT_FALSE(step.ok());
    return std::string(step.status().message());
  }

 private:
  std::string text_;
};

std::string numbered(const std::string& name, int number) {
  return absl::StrCat(name, number);
}

// n ops forward, each result kept for the op that goes back over it.
Trace chain(int n, int64_t bytes, const std::function<int64_t(int)>& time_of) {
  Trace trace;
  trace.constant("f0", bytes);
  for (int i = 1; i <= n; ++i) {
    trace.call(time_of(i), {numbered("f", i - 1)}, {{numbered("f", i), bytes}});
  }
  trace.annotate("BACKWARD");
  trace.call(time_of(n), {numbered("f", n)}, {{numbered("b", n), bytes}});
  for (int i = n - 1; i >= 0; --i) {
    trace.call(time_of(i), {numbered("b", i + 1), numbered("f", i)}, {{numbered("b", i), bytes}});
    trace.release(numbered("b", i + 1)).release(numbered("f", i + 1));
  }
  return trace;
}

Trace chain(int n, int64_t bytes, int64_t time) {
  return chain(n, bytes, [time](int) { return time; });
}

TEST(StepSimulatorTest, WithoutABudgetThePeakIsThatOfTheProgram) {
  const RecordedStep step = Trace()
                                .constant("w", 7)
                                .call(10, {"w"}, {{"a", 100}})
                                .call(10, {"a"}, {{"b", 50}})
                                .release("a")
                                .call(10, {"b"}, {{"c", 60}})
                                .read();
  const StepResult result = simulate(step, {});
  EXPECT_EQ(result.outcome, StepResult::kCompleted);
  EXPECT_EQ(result.peak_bytes, 7 + 100 + 50);
  EXPECT_EQ(result.cost, 30);
  EXPECT_EQ(result.evictions, 0);
}

TEST(StepSimulatorTest, WhatStandsBeforeStartIsSkipped) {
  std::istringstream lines(R"({"INSTRUCTION":"CONSTANT","NAME":"setup"})"
                           "\n\n" +
                           Trace().constant("w", 7).release("setup").call(1, {"w"}, {{"a", 1}}).text());
  const absl::StatusOr<RecordedStep> step = benchmarks::read_dtr_trace(lines, "trace");
  ASSERT_TRUE(step.ok()) << step.status();
  EXPECT_EQ(step->values.size(), 2U);
}

TEST(StepSimulatorTest, ADroppedValueIsRecomputedForTheOpThatTakesItAndAtTheEnd) {
  // a must go for c, and comes back for d; b, which costs more, stays.
  Trace trace;
  trace.constant("w", 0).call(10, {"w"}, {{"a", 100}}).call(1000, {"w"}, {{"b", 100}}).call(1, {"b"}, {{"c", 100}});
  trace.release("c").call(1, {"a"}, {{"d", 0}});
  StepResult result = simulate(trace.read(), {.budget = 200});
  EXPECT_EQ(result.outcome, StepResult::kCompleted);
  EXPECT_EQ(result.cost, 1012 + 10);
  EXPECT_EQ(result.evictions, 1);
  EXPECT_EQ(result.replayed.size(), 1);
  EXPECT_EQ(result.peak_bytes, 200);

  trace = Trace();
  trace.constant("w", 0).call(10, {"w"}, {{"a", 100}}).call(1000, {"w"}, {{"b", 100}}).call(1, {"b"}, {{"c", 100}});
  trace.release("c");
  result = simulate(trace.read(), {.budget = 200});
  EXPECT_EQ(result.cost, 1011 + 10);  // a is alive at the end
}

TEST(StepSimulatorTest, AReleasedValueIsKeptNoLonger) {
  const RecordedStep step = Trace()
                                .constant("w", 0)
                                .call(10, {"w"}, {{"a", 100}})
                                .copy("a2", "a")
                                .release("a")
                                .release("a2")
                                .call(10, {"w"}, {{"b", 100}})
                                .read();
  const StepResult result = simulate(step, {.budget = 100});
  EXPECT_EQ(result.outcome, StepResult::kCompleted);
  EXPECT_EQ(result.evictions, 0);
  EXPECT_EQ(result.cost, 20);
}

TEST(StepSimulatorTest, ACopyIsAnotherNameForTheSameBytes) {
  const RecordedStep step = Trace()
                                .constant("w", 0)
                                .call(10, {"w"}, {{"a", 100}})
                                .copy("a2", "a")
                                .release("a")
                                .call(10, {"a2"}, {{"b", 10}})
                                .read();
  EXPECT_EQ(simulate(step, {}).peak_bytes, 110);
  EXPECT_EQ(step.alive_at_end.size(), 3U);
}

TEST(StepSimulatorTest, CopyFromLetsGoOfWhatTheNameWasFor) {
  const RecordedStep step = Trace()
                                .constant("w", 0)
                                .call(10, {"w"}, {{"a", 100}})
                                .call(10, {"w"}, {{"b", 30}})
                                .copy_from("a", "b")
                                .call(10, {"a"}, {{"c", 100}})
                                .read();
  const StepResult result = simulate(step, {});
  EXPECT_EQ(result.peak_bytes, 130);
  EXPECT_EQ(step.alive_at_end.size(), 3U);  // w, b under two names, c
  EXPECT_EQ(simulate(step, {.budget = 130}).evictions, 0);
}

TEST(StepSimulatorTest, MutateMakesANewVersionAndLetsGoOfTheOld) {
  Trace trace;
  trace.constant("w", 0).call(10, {"w"}, {{"a", 100}}).mutate(5, {"a"}, {0}).call(3, {"w"}, {{"b", 100}});
  const RecordedStep step = trace.read();
  EXPECT_EQ(simulate(step, {}).peak_bytes, 200);
  EXPECT_EQ(step.alive_at_end.size(), 3U);
  // The new version is recomputed by way of the old one.
  Trace tight;
  tight.constant("w", 0).call(10, {"w"}, {{"a", 100}}).mutate(5, {"a"}, {0});
  tight.call(3000, {"w"}, {{"b", 100}}).call(1000, {"w"}, {{"c", 100}}).release("b").release("c");
  const StepResult result = simulate(tight.read(), {.budget = 200});
  EXPECT_EQ(result.outcome, StepResult::kCompleted);
  EXPECT_EQ(result.cost, 10 + 5 + 3000 + 1000 + 10 + 5);
}

TEST(StepSimulatorTest, OtherNamesOfAMutatedValueKeepTheOldVersion) {
  const RecordedStep step =
      Trace().constant("w", 0).call(10, {"w"}, {{"a", 100}}).copy("old", "a").mutate(5, {"a"}, {0}).read();
  EXPECT_EQ(step.alive_at_end.size(), 3U);
  const StepResult result = simulate(step, {.budget = 199});
  EXPECT_EQ(result.outcome, StepResult::kOutOfMemory);
}

TEST(StepSimulatorTest, AViewHasNoBytesAndIsMadeAgainOverRecomputedOnes) {
  Trace trace;
  trace.constant("w", 0).call(10, {"w"}, {{"a", 100}}).call(2, {"a"}, {{"v", 100, 0}}).call(2, {"v"}, {{"vv", 100, 0}});
  trace.release("a").release("v");
  EXPECT_EQ(simulate(trace.read(), {}).peak_bytes, 100);
  trace.call(1000, {"w"}, {{"b", 100}}).release("b").call(1, {"vv"}, {{"c", 0}});
  const StepResult result = simulate(trace.read(), {.budget = 100});
  EXPECT_EQ(result.outcome, StepResult::kCompleted);
  EXPECT_EQ(result.cost, 1015 + 10 + 2 + 2);
}

TEST(StepSimulatorTest, AResultThatExistsAlreadyIsThereTwiceWhileItsOpRunsAgain) {
  // x goes for t (it costs nothing more than y, and is older); then its op runs again beside y.
  Trace trace;
  trace.constant("w", 0).call(10, {"w"}, {{"x", 100}, {"y", 10}}).call(1000, {"w"}, {{"t", 60}}).release("t");
  trace.call(1, {"x"}, {{"z", 0}});
  const StepResult enough = simulate(trace.read(), {.budget = 120});
  EXPECT_EQ(enough.outcome, StepResult::kCompleted);
  EXPECT_EQ(enough.peak_bytes, 120);
  EXPECT_EQ(enough.cost, 1011 + 10);
}

TEST(StepSimulatorTest, WhatComesFromOutsideIsNeverDropped) {
  const RecordedStep step =
      Trace().constant("w", 100).release("w").constant("x", 50).call(1, {"x"}, {{"a", 10}}).read();
  EXPECT_EQ(simulate(step, {}).peak_bytes, 160);
  const StepResult result = simulate(step, {.budget = 159});
  EXPECT_EQ(result.outcome, StepResult::kOutOfMemory);
  EXPECT_EQ(result.missing_bytes, 1);
  EXPECT_EQ(result.failed_op, 0U);
}

TEST(BytesAtOnceTest, AnOpHasWhatCameFromOutsideItsInputsAndItsResultsAtOnce) {
  Trace trace;
  trace.constant("w", 100).call(1, {"w"}, {{"a", 10}}).call(1, {"a", "a"}, {{"b", 20}}).release("a");
  trace.call(1, {"b"}, {{"view", 0, 0}}).call(1, {"view", "w"}, {{"c", 5}}).constant("x", 7);
  const RecordedStep step = trace.read();
  EXPECT_EQ(first_beyond(step, 99).bytes, 100);
  EXPECT_EQ(first_beyond(step, 99).op, kNoId);
  EXPECT_EQ(first_beyond(step, 100).bytes, 110);
  EXPECT_EQ(first_beyond(step, 100).op, 0U);
  EXPECT_EQ(first_beyond(step, 110).bytes, 130);
  EXPECT_EQ(first_beyond(step, 110).op, 1U);
  EXPECT_EQ(first_beyond(step, 130).bytes, 132);  // w, x, b and c at the end
  EXPECT_EQ(first_beyond(step, 130).op, kNoId);
  EXPECT_EQ(first_beyond(step, 132).bytes, 0);
  EXPECT_EQ(least_bytes(step), 132);
}

TEST(BytesAtOnceTest, NoBudgetBelowThemIsMet) {
  Trace wide;
  wide.constant("w", 10);
  std::vector<std::string> all;
  for (int i = 0; i < 10; ++i) {
    all.push_back(numbered("a", i));
    wide.call(5, {"w"}, {{all.back(), 10}});
  }
  wide.call(5, all, {{"b", 1}});
  for (const RecordedStep& step : {chain(20, 10, 100).read(), wide.read()}) {
    const int64_t least = least_bytes(step);
    for (const bool known : {false, true}) {
      const StepResult below = simulate(step, {.budget = least - 1, .step_known = known});
      EXPECT_EQ(below.outcome, StepResult::kOutOfMemory);
      EXPECT_EQ(simulate(step, {.budget = least + 10, .step_known = known}).outcome, StepResult::kCompleted);
    }
  }
}

TEST(StepSimulatorTest, AStepThatCostsTooMuchIsGivenUp) {
  const StepResult result = simulate(chain(200, 10, 100).read(), {.budget = 60, .give_up_at = 2});
  EXPECT_EQ(result.outcome, StepResult::kGivenUp);
  EXPECT_LE(result.cost, 2 * 401 * 100 + 100);
}

TEST(StepSimulatorTest, AStepThatReplaysTooMuchIsGivenUp) {
  const RecordedStep step = chain(200, 10, 100).read();
  const StepResult all = simulate(step, {.budget = 1000});
  ASSERT_EQ(all.outcome, StepResult::kCompleted);
  const size_t replays = all.replayed.size();
  EXPECT_EQ(simulate(step, {.budget = 1000, .most_replays = replays}).outcome, StepResult::kCompleted);
  const StepResult result = simulate(step, {.budget = 1000, .most_replays = replays - 1});
  EXPECT_EQ(result.outcome, StepResult::kGivenUp);
  EXPECT_EQ(result.replayed.size(), replays - 1);
}

TEST(StepSimulatorTest, KnowingTheStepDropsWhatHasANameButNoFurtherUse) {
  Trace trace;
  trace.constant("w", 0).call(1000, {"w"}, {{"unused", 100}}).call(10, {"w"}, {{"a", 100}});
  trace.call(10, {"w"}, {{"b", 100}}).release("b").call(10, {"a"}, {{"c", 0}}).release("unused");
  const RecordedStep step = trace.read();
  const StepResult online = simulate(step, {.budget = 200});
  EXPECT_EQ(online.cost, 1030 + 10);
  const StepResult known = simulate(step, {.budget = 200, .step_known = true});
  EXPECT_EQ(known.outcome, StepResult::kCompleted);
  EXPECT_EQ(known.cost, 1030);
  EXPECT_EQ(known.evictions, 0);
}

TEST(StepSimulatorTest, ASearchedRuleIsNoDearerThanTheDefaultOne) {
  const RecordedStep step = chain(60, 10, 100).read();
  const int64_t budget = simulate(step, {}).peak_bytes / 3;
  const internal::RuleChoice choice = internal::best_rule(step, budget);
  ASSERT_EQ(choice.result.outcome, StepResult::kCompleted);
  EXPECT_LE(choice.result.peak_bytes, budget);
  EXPECT_LE(choice.result.cost, simulate(step, {.budget = budget, .step_known = true}).cost);
  EXPECT_LE(choice.result.cost, simulate(step, {.budget = budget}).cost);
  // The choice is what gives the result.
  EXPECT_EQ(simulate(step, choice.options).cost, choice.result.cost);
}

TEST(StepForesightTest, AValueThatOnlyServesOthersIsUsedWhenTheFirstOfThemIs) {
  internal::Evictor evictor({.budget = 1000});
  internal::StepForesight foresight(evictor, /*step_length=*/100);
  const internal::ValueId input = evictor.add_outside(10, internal::Place::kElsewhere);
  const auto run = [&](internal::ValueId taken) {
    foresight.program_ran(10);
    evictor.ran(10);
    const internal::ValueId result =
        evictor.add_result(evictor.add_node(10, {taken}), 10, internal::Retention::kPreferSave);
    evictor.set_place(result, internal::Place::kHeld);
    evictor.add_hook(result);
    return result;
  };
  const internal::ValueId served = run(input);
  const internal::ValueId near = run(served);
  const internal::ValueId far = run(served);
  foresight.set_next_use(near, 60);
  foresight.set_next_use(far, 90);
  evictor.ran(1000);                              // a replay, which is not on the program's clock
  EXPECT_EQ(foresight.next_use(served), 2 * 30);  // nothing waits for it
  evictor.set_place(far, internal::Place::kNowhere);
  EXPECT_EQ(foresight.next_use(served), 90);
  evictor.set_place(near, internal::Place::kNowhere);
  EXPECT_EQ(foresight.next_use(served), 60);
  foresight.set_next_use(served, 40);
  EXPECT_EQ(foresight.next_use(served), 40);
}

TEST(StepForesightTest, ACostFactorIsPositive) {
  const RecordedStep step = chain(5, 10, 100).read();
  EXPECT_THROW(simulate(step, {.bias = std::vector<double>(step.values.size(), 0.0)}), std::logic_error);
}

TEST(RuleSearchTest, MakesAnIrregularStepCheaperThanTheRuleAloneAndTheSameEachTime) {
  const RecordedStep step = chain(60, 10, [](int i) { return 100 + i * 37 % 101; }).read();
  const int64_t budget = simulate(step, {}).peak_bytes / 3;
  internal::RuleChoice rule;
  rule.options = {.budget = budget, .step_known = true};
  rule.result = simulate(step, rule.options);
  ASSERT_EQ(rule.result.outcome, StepResult::kCompleted);
  const internal::RuleChoice found = internal::improve_rule(step, rule);
  EXPECT_LT(found.result.cost, rule.result.cost);
  EXPECT_LE(found.result.peak_bytes, budget);
  EXPECT_EQ(simulate(step, found.options).cost, found.result.cost);
  EXPECT_EQ(internal::improve_rule(step, rule).options.bias, found.options.bias);
}

TEST(RuleSearchTest, LeavesAChoiceAloneThatDoesNotComplete) {
  const RecordedStep step = chain(60, 10, 100).read();
  internal::RuleChoice rule;
  rule.options = {.budget = 10, .step_known = true};
  rule.result = simulate(step, rule.options);
  ASSERT_EQ(rule.result.outcome, StepResult::kOutOfMemory);
  const internal::RuleChoice found = internal::improve_rule(step, rule);
  EXPECT_EQ(found.result.outcome, StepResult::kOutOfMemory);
  EXPECT_TRUE(found.options.bias.empty());
}

// Of attempts that go on from copies of earlier simulations, and of those that are cut short.
TEST(StepAttemptsTest, EachAttemptEndsAsTheSimulationOfItsOptionsDoes) {
  const RecordedStep step = chain(60, 10, [](int i) { return 100 + i * 37 % 101; }).read();
  internal::RuleChoice first;
  first.options = {.budget = simulate(step, {}).peak_bytes / 3, .step_known = true};
  first.result = simulate(step, first.options);
  ASSERT_EQ(first.result.outcome, StepResult::kCompleted);
  internal::StepAttempts attempts(step, first);
  internal::RuleMoves moves(step);
  int cheaper = 0;
  for (int i = 0; i < 300; ++i) {
    internal::SimulatorOptions options =
        i % 3 == 0 ? moves.change_constants(attempts.best()) : moves.change_something(attempts.best());
    options.by_next_use = i % 10 != 9;
    const double before = attempts.best().result.cost;
    const StepResult alone = simulate(step, options);
    const bool is_cheaper = alone.outcome == StepResult::kCompleted && alone.cost < before;
    ASSERT_EQ(attempts.attempt(options), is_cheaper) << i;
    ASSERT_EQ(attempts.best().result.cost, is_cheaper ? alone.cost : before) << i;
    if (is_cheaper) {
      EXPECT_EQ(attempts.best().result.replayed, alone.replayed) << i;
    }
    cheaper += is_cheaper ? 1 : 0;
  }
  EXPECT_GT(cheaper, 2);
}

TEST(StepAttemptsTest, AnAttemptIsLessWorkThanSimulatingTheStep) {
  const RecordedStep step = chain(200, 10, [](int i) { return 100 + i * 37 % 101; }).read();
  internal::RuleChoice first;
  first.options = {.budget = simulate(step, {}).peak_bytes / 3, .step_known = true};
  first.result = simulate(step, first.options);
  internal::StepAttempts attempts(step, first);
  internal::SimulatorOptions options = first.options;
  options.rule.share *= 1.01;
  attempts.attempt(options);
  const int64_t whole = attempts.work();
  EXPECT_LT(whole, static_cast<int64_t>(step.events.size()) * 20);
  // Only what the last op makes has another factor.
  options = attempts.best().options;
  options.bias.assign(step.values.size(), 1.0);
  options.bias[step.tensors[step.ops.back().results.front()].value] = 2;
  attempts.attempt(options);
  EXPECT_LT(attempts.work() - whole, whole);
}

TEST(StepSimulatorTest, AKnownStepIsWeighedByNextUsesOrByLastOnes) {
  Trace trace;
  trace.constant("w", 0).call(10, {"w"}, {{"a", 100}}).call(10, {"w"}, {{"b", 100}});
  trace.call(10, {"w"}, {{"c", 100}}).release("c");
  trace.call(10, {"a"}, {{"d", 0}}).release("a").call(10, {"b"}, {{"e", 0}}).release("b");
  const RecordedStep step = trace.read();
  // "a" was used first and is used again first.
  EXPECT_THAT(simulate(step, {.budget = 200, .step_known = true}).replayed, testing::ElementsAre(1));
  EXPECT_THAT(simulate(step, {.budget = 200, .step_known = true, .by_next_use = false}).replayed,
              testing::ElementsAre(0));
}

TEST(StepSimulatorTest, TheSameStepGivesTheSameRun) {
  const RecordedStep step = chain(300, 10, 100).read();
  const StepResult one = simulate(step, {.budget = 500});
  const StepResult two = simulate(step, {.budget = 500});
  EXPECT_EQ(one.outcome, StepResult::kCompleted);
  EXPECT_EQ(one.cost, two.cost);
  EXPECT_EQ(one.evictions, two.evictions);
  EXPECT_EQ(one.peak_bytes, two.peak_bytes);
}

TEST(StepSimulatorTest, AChainInTwiceItsRootOfLiveValuesRunsEachOpAboutOnceMore) {
  for (const int n : {100, 400, 1600, 6400}) {
    const RecordedStep step = chain(n, 10, 100).read();
    // 4 are the input and those of the op at hand.
    const int64_t live = 2 * static_cast<int64_t>(std::sqrt(n)) + 4;
    const StepResult result = simulate(step, {.budget = 10 * live});
    ASSERT_EQ(result.outcome, StepResult::kCompleted) << n;
    EXPECT_LE(result.peak_bytes, 10 * live);
    EXPECT_LT(static_cast<double>(result.replayed.size()), 1.5 * n) << n;
  }
}

TEST(StepSimulatorTest, AChainOfTensOfThousandsIsBroughtBackWithoutRecursion) {
  constexpr int kOps = 30000;
  Trace trace;
  trace.constant("w", 10).call(1, {"w"}, {{"f0", 10}});
  for (int i = 1; i < kOps; ++i) {
    trace.call(1, {numbered("f", i - 1)}, {{numbered("f", i), 10}}).release(numbered("f", i - 1));
  }
  const std::string last = numbered("f", kOps - 1);
  // The last of the chain goes for y.
  trace.call(1'000'000, {"w"}, {{"x", 10}}).call(1, {"x"}, {{"y", 10}}).release("x").release("y");
  trace.call(1, {last}, {{"z", 0}});
  const StepResult result = simulate(trace.read(), {.budget = 30});
  EXPECT_EQ(result.outcome, StepResult::kCompleted);
  EXPECT_EQ(result.replayed.size(), kOps);
  EXPECT_EQ(result.peak_bytes, 30);
}

// --- errors
// -----------------------------------------------------------------------------------------------------------

TEST(DtrTraceTest, AMissingFileIsNamed) {
  const absl::StatusOr<RecordedStep> step = benchmarks::read_dtr_trace("/nowhere/at_all.log");
  EXPECT_THAT(std::string(step.status().message()), AllOf(HasSubstr("/nowhere/at_all.log"), HasSubstr("No such file")));
}

TEST(DtrTraceTest, AGarbledTraceIsAnErrorThatNamesTheLine) {
  EXPECT_THAT(Trace().line("not json").error(),
              AllOf(HasSubstr("trace, line 2"), HasSubstr("not a JSON object: not json")));
  EXPECT_THAT(Trace().line("[1]").error(), HasSubstr("not a JSON object"));
  EXPECT_THAT(Trace().line("{}").error(), HasSubstr("has no \"INSTRUCTION\""));
  EXPECT_THAT(Trace().line(R"({"INSTRUCTION":"JUMP"})").error(), HasSubstr("\"JUMP\"; expected CONSTANT"));
  EXPECT_THAT(Trace().line(R"({"INSTRUCTION":"RELEASE","NAME":3})").error(),
              HasSubstr("\"NAME\" is 3; expected a string"));
  EXPECT_THAT(Trace().line(R"({"INSTRUCTION":"CONSTANT","NAME":"w"})").error(), HasSubstr("expected MEMORY of w"));
  EXPECT_THAT(Trace().constant("w", -5).error(), HasSubstr("whole number from 0 up"));
  EXPECT_THAT(Trace().constant("w", 1).constant("w", 1).error(), HasSubstr("makes w, which exists already"));
  EXPECT_THAT(Trace().copy("a", "b").error(), HasSubstr("uses b, which does not exist"));
  EXPECT_THAT(Trace().call(1, {"b"}, {}).error(), HasSubstr("uses b"));
  EXPECT_THAT(Trace().constant("w", 1).call(1, {"w"}, {{"a", 1, 1}}).error(), HasSubstr("has 1 arguments"));
  EXPECT_THAT(Trace().constant("w", 1).call(-1, {"w"}, {{"a", 1}}).error(), HasSubstr("\"TIME\" is \"-1\""));
  EXPECT_THAT(Trace().constant("w", 1).mutate(1, {"w"}, {2}).error(), HasSubstr("names argument 2"));
  EXPECT_THAT(
      Trace().constant("w", 1).line(R"({"INSTRUCTION":"CALL","NAME":"f","ARGS":"w","RESULT":[],"TIME":"1"})").error(),
      HasSubstr("expected a list"));
}

TEST(DtrTraceTest, AFileWithoutAStepIsAnError) {
  std::istringstream nothing("");
  EXPECT_THAT(std::string(benchmarks::read_dtr_trace(nothing, "trace").status().message()), HasSubstr("START"));
  EXPECT_THAT(Trace().constant("w", 1).error(), HasSubstr("the step is empty"));
}

test::Printed simulate_by_program(const std::string& arguments) {
  return test::run_program("benchmarks/budget_simulator " + arguments);
}

class BudgetSimulatorTest : public ::testing::Test {
 protected:
  BudgetSimulatorTest() { std::ofstream(path_) << chain(100, 1000, 100).text(); }
  ~BudgetSimulatorTest() override { std::remove(path_.c_str()); }

  const std::string path_ = testing::TempDir() + "/budget_simulator_test.log";
};

TEST_F(BudgetSimulatorTest, PrintsARowForEachBudget) {
  const test::Printed run = simulate_by_program(path_ + " --budget 1,0.5,0.25");
  EXPECT_EQ(run.status, 0) << run.output;
  EXPECT_THAT(run.output, HasSubstr("201 ops"));
  EXPECT_THAT(run.output,
              HasSubstr("\n     1          103000          103000       0.020      1.0000         0          0"));
  EXPECT_THAT(run.output, HasSubstr("\n   0.5           51500           51000"));
  EXPECT_THAT(run.output, HasSubstr("\n  0.25           25750           25000"));
}

TEST_F(BudgetSimulatorTest, RunsTheStepKnown) {
  const test::Printed run = simulate_by_program(path_ + " --budget 0.5 --known_step");
  EXPECT_EQ(run.status, 0) << run.output;
  EXPECT_THAT(run.output, AllOf(HasSubstr("step known"), HasSubstr("51500")));
}

TEST_F(BudgetSimulatorTest, RepeatsTheStepWithALineForEach) {
  const test::Printed run = simulate_by_program(path_ + " --budget 0.5,0.25 --repeat 5");
  EXPECT_EQ(run.status, 0) << run.output;
  EXPECT_THAT(run.output, AllOf(HasSubstr("\n   0.5     1           51000"), HasSubstr(": plain\n"),
                                HasSubstr("\n   0.5     5"), HasSubstr("\n  0.25     5")));
}

TEST_F(BudgetSimulatorTest, RefusesAnEffortOfNothingOrForAStepThatIsNotKnown) {
  for (const std::string arguments : {"--effort 2", "--known_step --effort 0", "--known_step --effort nan"}) {
    const test::Printed run = simulate_by_program(absl::StrCat(path_, " ", arguments));
    EXPECT_EQ(run.status, 2) << arguments;
    EXPECT_THAT(run.output, HasSubstr("expected a number above 0 and at most 1000, with --known_step")) << arguments;
  }
}

TEST_F(BudgetSimulatorTest, RefusesToRepeatNothingAndAKnownStep) {
  for (const std::string arguments : {"--repeat 0", "--repeat=-1", "--repeat 2 --known_step"}) {
    const test::Printed run = simulate_by_program(absl::StrCat(path_, " ", arguments));
    EXPECT_EQ(run.status, 2) << arguments;
    EXPECT_THAT(run.output, HasSubstr("expected a number from 1 on")) << arguments;
  }
}

TEST_F(BudgetSimulatorTest, MeetsABudgetInThreeWaysWithTheHostsMemoryBehindTheDevice) {
  const test::Printed run = simulate_by_program(path_ + " --budget 0.5 --link 25");
  EXPECT_EQ(run.status, 0) << run.output;
  EXPECT_THAT(run.output, AllOf(HasSubstr("step known"), HasSubstr("\n   0.5 recompute            51000"),
                                HasSubstr("\n   0.5 offload "), HasSubstr("\n   0.5 both ")));
}

TEST_F(BudgetSimulatorTest, RefusesALinkThatIsNoneAndOtherWaysBesideIt) {
  for (const std::string arguments : {"--link=-1", "--link nan", "--link 25 --repeat 2", "--link 25 --known_step"}) {
    const test::Printed run = simulate_by_program(absl::StrCat(path_, " ", arguments));
    EXPECT_EQ(run.status, 2) << arguments;
    EXPECT_THAT(run.output, HasSubstr("expected GB a second")) << arguments;
  }
}

TEST_F(BudgetSimulatorTest, ComparesRulesWithALineForEachTraceAndBudget) {
  const test::Printed run =
      simulate_by_program(absl::StrCat(path_, " ", path_, " --budget 1,0.5,0.01 --compare_rules --repeat 5"));
  EXPECT_EQ(run.status, 0) << run.output;
  EXPECT_THAT(run.output,
              AllOf(HasSubstr("   step 1    step 5       DTR    DTR-eq     local       LRU   largest"),
                    HasSubstr("\nbudget_simulator_test      1    1.0000    1.0000    1.0000    1.0000    1.0000"
                              "    1.0000    1.0000    +0.00    +0.00\n"),
                    HasSubstr("\nbudget_simulator_test    0.5    1."),
                    HasSubstr("\nbudget_simulator_test   0.01   not met   not met   not met")));
}

TEST_F(BudgetSimulatorTest, RefusesToCompareRulesOfNothingOrWithOtherWaysToKnowTheStep) {
  EXPECT_THAT(simulate_by_program("--compare_rules").output, HasSubstr("expected one trace or more, got 0"));
  for (const std::string other : {"--known_step", "--link 25"}) {
    const test::Printed run = simulate_by_program(absl::StrCat(path_, " --compare_rules ", other));
    EXPECT_EQ(run.status, 2) << other;
    EXPECT_THAT(run.output, HasSubstr("expected neither --known_step nor --link with --compare_rules")) << other;
  }
  EXPECT_EQ(simulate_by_program(path_ + " /nowhere/at_all.log --compare_rules --budget 1").status, 1);
}

TEST_F(BudgetSimulatorTest, ABudgetThatCannotBeMetNamesTheSmallestThatCan) {
  for (const std::string known : {"", " --known_step"}) {
    const test::Printed run = simulate_by_program(path_ + " --budget 0.01" + known);
    EXPECT_EQ(run.status, 1);
    // Input, the two arguments of an op, and its result.
    EXPECT_THAT(run.output, AllOf(HasSubstr("a budget of 0.01 (1030 bytes) cannot be met: op (op 0) needs"),
                                  HasSubstr("The smallest that was met on trying is 0.039 (40")));
  }
}

TEST_F(BudgetSimulatorTest, RefusesBudgetsOutOfRange) {
  for (const std::string budget : {"0", "-0.5", "1.5", "half", "nan", "''", "0.5,2"}) {
    const test::Printed run = simulate_by_program(path_ + " --budget=" + budget);
    EXPECT_EQ(run.status, 2) << budget << run.output;
    EXPECT_THAT(run.output, HasSubstr("above 0 and at most 1")) << budget;
  }
}

TEST_F(BudgetSimulatorTest, RefusesAWrongNumberOfTracesAndOneThatIsMissing) {
  EXPECT_THAT(simulate_by_program("").output, HasSubstr("expected one trace, got 0"));
  EXPECT_EQ(simulate_by_program("a b").status, 2);
  const test::Printed run = simulate_by_program("/nowhere/at_all.log");
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.output, HasSubstr("cannot read the trace /nowhere/at_all.log"));
}

}  // namespace
}  // namespace ac2

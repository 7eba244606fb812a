// The memory of a step, and how the next one is found in it.
#include "ac2/internal/eviction/step_memory.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "ac2/internal/eviction/evictor.h"
#include "ac2/internal/eviction/remembered_step.h"
#include "ac2/internal/eviction/rule_trials.h"
#include "ac2/internal/eviction/step_store.h"

namespace ac2::internal {
namespace {

constexpr int64_t kBudget = 100;
constexpr RuleSetting kNextUses = {.constants = {}, .next_uses = true};

// A step of ops with these signatures, each of which takes the result of the one before it.
std::unique_ptr<RememberedStep> chain(const std::vector<uint64_t>& signatures) {
  auto step = std::make_unique<RememberedStep>();
  for (size_t i = 0; i < signatures.size(); ++i) {
    step->add_op(signatures[i], 10);
    if (i > 0) {
      step->add_use(static_cast<uint32_t>(i - 1));
    }
    step->add_result();
  }
  return step;
}

TEST(RememberedStepTest, KnowsTheUsesOfEachResult) {
  RememberedStep step;
  step.add_op(1, 10);
  step.add_result();
  step.add_result();
  step.add_op(2, 20);
  step.add_use(1);
  step.add_op(3, 5);
  step.add_use(0);
  step.add_use(1);
  step.finish();
  EXPECT_EQ(step.next_use(0, RememberedStep::kNone), 2);
  EXPECT_EQ(step.next_use(1, 0), 1);
  EXPECT_EQ(step.next_use(1, 1), 2);
  EXPECT_EQ(step.next_use(1, 2), RememberedStep::kNone);
  EXPECT_EQ(step.begin(2), 30);
  EXPECT_EQ(step.cost(1), 20);
  EXPECT_EQ(step.length(), 35);
}

TEST(RememberedStepTest, FindsAPlaceByTheOpsBeforeIt) {
  const auto step = chain({1, 2, 3, 4, 1, 2, 3, 4, 5});
  step->finish();
  const auto other = chain({9, 1, 2, 3, 4});
  EXPECT_EQ(step->find(other->anchor(4), 0), 3);
  EXPECT_EQ(step->find(other->anchor(4), 4), 7);
  EXPECT_EQ(step->find(other->anchor(4), 8), RememberedStep::kNone);
  EXPECT_EQ(step->find(other->anchor(3), 0), RememberedStep::kNone);
}

TEST(RememberedStepTest, TakesTheBytesThatItsHeaderSays) {
  const auto step = chain(std::vector<uint64_t>(1000, 7));
  step->finish();
  // 32 an op and 4 for its place among the anchors, 4 a result and one more, 4 a use.
  EXPECT_EQ(step->bytes(), 1000 * 32 + 997 * 4 + 1001 * 4 + 999 * 4);
}

TEST(RuleTrialsTest, BeginsWithThePlainRuleAndEndsWithTheBest) {
  RuleTrials trials;
  EXPECT_TRUE(trials.next(kBudget).setting.is_plain());
  const RuleSetting best = {.constants = {.share = 0.1, .horizon = 3.0, .floor = 0.0}, .next_uses = true};
  size_t runs = 0;
  for (; runs < 3 * RuleTrials::kMostTries; ++runs) {
    const RuleTrials::Run run = trials.next(kBudget);
    trials.cost(run.setting, run.setting == best ? 1 : 2, kBudget);
  }
  EXPECT_EQ(trials.next(kBudget).setting, best);
  EXPECT_EQ(trials.next(kBudget).bound, RuleTrials::kNoBound) << "nothing is tried any more";
  EXPECT_GT(trials.tries(), 8);
  EXPECT_LE(trials.tries(), RuleTrials::kMostTries);
}

TEST(RuleTrialsTest, AStepThatReplaysNothingIsLeftAlone) {
  RuleTrials trials;
  trials.cost({}, 0, kBudget);
  EXPECT_TRUE(trials.next(kBudget).setting.is_plain());
  EXPECT_EQ(trials.tries(), 1);
}

TEST(RuleTrialsTest, AfterTheFirstTriesEachIsFollowedByTheBest) {
  RuleTrials trials;
  int in_a_row = 0;
  for (int i = 0; i < 20; ++i) {
    const RuleTrials::Run run = trials.next(kBudget);
    const size_t before = trials.tries();
    trials.cost(run.setting, run.setting.is_plain() ? 1 : 2, kBudget);
    in_a_row = trials.tries() > before ? in_a_row + 1 : 0;
    if (before >= RuleTrials::kTriesInARow) {
      EXPECT_LE(in_a_row, 1) << i;
    }
  }
}

TEST(RuleTrialsTest, WhatIsInheritedIsFoundOutAboutAndPlainIsNotPassedOver) {
  RuleTrials trials;
  trials.cost({}, 5, kBudget);
  trials.cost(kNextUses, 1, kBudget);
  RuleTrials inherited = trials.inherited();
  EXPECT_EQ(inherited.next(kBudget).setting, kNextUses);
  EXPECT_EQ(inherited.next(kBudget).bound, RuleTrials::kNoBound) << "another step's cost must not end this one's run";
  inherited.cost(kNextUses, 9, kBudget);
  EXPECT_TRUE(inherited.next(kBudget).setting.is_plain());
  inherited.cost({}, 8, kBudget);
  EXPECT_TRUE(inherited.best().is_plain());
  // Another budget is as good as another step.
  trials.cost(kNextUses, 7, 2 * kBudget);
  EXPECT_TRUE(trials.next(2 * kBudget).setting.is_plain());
}

TEST(StepStoreTest, RemembersAStepOnceAndTheLastOnesOnly) {
  StepStore store;
  const auto first = store.ended(chain({1, 2, 3}), {});
  const int64_t bytes = store.bytes();
  EXPECT_EQ(store.ended(chain({1, 2, 3}), {}), first);
  EXPECT_EQ(store.bytes(), bytes);
  for (uint64_t i = 0; i < 100; ++i) {
    store.ended(chain({100 + i, 2, 3}), {});
  }
  EXPECT_LE(store.bytes(), static_cast<int64_t>(StepStore::kMostSteps) * bytes);
  EXPECT_EQ(store.find(*first, 0), nullptr);
  const auto last = chain({199});
  EXPECT_NE(store.find(*last, 0), nullptr);
}

TEST(StepStoreTest, DoesNotRememberWhatIsTooLong) {
  StepStore store;
  EXPECT_EQ(store.ended(chain(std::vector<uint64_t>(StepStore::kMostOps + 1, 1)), {}), nullptr);
  EXPECT_EQ(store.ended(std::make_unique<RememberedStep>(), {}), nullptr);
  EXPECT_EQ(store.bytes(), 0);
}

TEST(StepStoreTest, ThreadsMayUseIt) {
  StepStore store;
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&store, t] {
      for (uint64_t i = 0; i < 200; ++i) {
        const auto step = store.ended(chain({i % 5, t, 3}), {.budget = kBudget, .setting = RuleSetting()});
        store.next_run(*step, kBudget);
        store.find(*step, 1);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_GT(store.bytes(), 0);
}

// A program whose ops are a chain; backward takes the results in the opposite order.
class Program {
 public:
  explicit Program(StepStore& store) : memory(evictor, store, StepMemory::Wants::kUntilTaken) {
    evictor.consult({.foresight = &memory});
  }

  ValueId run(uint64_t signature) {
    const std::vector<ValueId> inputs(values.empty() ? std::vector<ValueId>() : std::vector<ValueId>{values.back()});
    const NodeId node = evictor.add_node(10, inputs);
    memory.ran(signature, 10, inputs);
    const ValueId value = evictor.add_result(node, 10, Retention::kPreferSave);
    memory.made(node, value);
    evictor.set_place(value, Place::kHeld);
    evictor.add_hook(value);
    values.push_back(value);
    return value;
  }
  void run_all(const std::vector<uint64_t>& signatures) {
    for (const uint64_t signature : signatures) {
      run(signature);
    }
  }
  void end_step() {
    for (; !values.empty(); values.pop_back()) {
      memory.took(values.back());
      evictor.remove_hook(values.back());
      evictor.set_place(values.back(), Place::kNowhere);
      evictor.forget(values.back());
      memory.forget(values.back());
    }
    memory.step_ended();
  }

  Evictor evictor{{.budget = kBudget}};
  StepMemory memory;
  std::vector<ValueId> values;
};

TEST(StepMemoryTest, KnowsAStepThatItHasSeen) {
  StepStore store;
  Program program(store);
  program.run_all({1, 2, 3, 4, 5});
  EXPECT_EQ(program.memory.ops_known(), 0);
  program.end_step();
  program.run_all({1, 2, 3, 4, 5});
  EXPECT_EQ(program.memory.ops_known(), 5);
  // Backward takes the last first, at the end of forward.
  EXPECT_EQ(program.memory.now(), 50);
  EXPECT_EQ(program.memory.next_use(program.values[4]), 50);
  EXPECT_EQ(program.memory.next_use(program.values[2]), 70);
}

TEST(StepMemoryTest, ANewBudgetKnowsWhatAnOtherHasSeen) {
  StepStore store;
  {
    Program program(store);
    program.run_all({1, 2, 3});
    program.end_step();
  }
  Program program(store);
  program.run_all({1, 2, 3});
  EXPECT_EQ(program.memory.ops_known(), 3);
}

TEST(StepMemoryTest, NothingIsKnownWhereTheStepDepartsUntilItIsFoundAgain) {
  StepStore store;
  Program program(store);
  program.run_all({1, 2, 3, 4, 5, 6, 7, 8, 9});
  program.end_step();
  // A branch: 20 in place of 3.
  program.run_all({1, 2, 20});
  EXPECT_EQ(program.memory.ops_known(), 2);
  program.run_all({4, 5, 6});
  EXPECT_EQ(program.memory.ops_known(), 2);
  program.run_all({7, 8, 9});
  EXPECT_EQ(program.memory.ops_known(), 5);
  EXPECT_EQ(program.memory.next_use(program.values[4]), 130) << "those of the anchor are known too";
}

TEST(StepMemoryTest, ASmallerBatchDoesNotMakeItForgetTheOthers) {
  StepStore store;
  Program program(store);
  for (const uint64_t batch : {1, 2, 1, 2}) {
    program.run_all({10 * batch + 1, 10 * batch + 2, 10 * batch + 3});
    program.end_step();
  }
  program.run_all({11, 12, 13});
  EXPECT_EQ(program.memory.ops_known(), 3);
  program.end_step();
  program.run_all({21, 22, 23});
  EXPECT_EQ(program.memory.ops_known(), 3);
}

TEST(StepMemoryTest, AGrowingSequenceIsFoundInTheShorterOne) {
  StepStore store;
  Program program(store);
  std::vector<uint64_t> steps;
  for (int i = 0; i < 8; ++i) {
    steps.insert(steps.end(), {1, 2, 3});
    program.run_all(steps);
    program.end_step();
  }
  program.run_all(steps);
  EXPECT_EQ(program.memory.ops_known(), 24);
}

TEST(StepMemoryTest, ATryThatCostsMoreThanTheBestIsGivenUp) {
  StepStore store;
  Program program(store);
  const std::vector<uint64_t> signatures{1, 2, 3};
  program.run_all(signatures);
  program.memory.about_to_choose();
  program.memory.replayed(program.evictor.graph().value(program.values[0]).producer);
  program.end_step();
  program.run_all(signatures);
  program.memory.about_to_choose();
  EXPECT_TRUE(program.memory.is_trying());
  const RuleSetting tried = program.memory.setting();
  EXPECT_FALSE(tried.is_plain());
  for (const ValueId value : {program.values[0], program.values[1]}) {
    program.memory.replayed(program.evictor.graph().value(value).producer);
  }
  EXPECT_TRUE(program.memory.setting().is_plain());
  EXPECT_EQ(program.memory.given_up(), tried);
}

TEST(StepMemoryTest, ItsBytesAreBoundedWhereNoStepEnds) {
  StepStore store;
  Evictor evictor({.budget = kBudget});
  StepMemory memory(evictor, store, StepMemory::Wants::kUntilTaken);
  for (uint32_t i = 0; i < StepStore::kMostOps + 10; ++i) {
    memory.ran(i, 1, {});
  }
  const int64_t bytes = memory.bytes();
  for (uint32_t i = 0; i < 1000; ++i) {
    memory.ran(i, 1, {});
  }
  EXPECT_EQ(memory.bytes(), bytes);
  memory.step_ended();
  EXPECT_EQ(store.bytes(), 0);
}

}  // namespace
}  // namespace ac2::internal

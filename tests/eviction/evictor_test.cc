// The evictor on small graphs whose victims are computed by hand, and against plain recomputation on random ones.
#include "ac2/internal/eviction/evictor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <stdexcept>
#include <vector>

#include "ac2/internal/eviction/eviction_rule.h"
#include "ac2/internal/eviction/evictor_graph.h"
#include "ac2/internal/eviction/foresight.h"
#include "ac2/internal/eviction/replay_needs.h"

namespace ac2::internal {
namespace {

// An evictor, and the few calls that most tests make.
class Program {
 public:
  explicit Program(Evictor::Options options = {.budget = 1000}) : evictor(options) {}

  // Runs an op and holds its result.
  ValueId run(double cost, const std::vector<ValueId>& inputs, int64_t bytes,
              Retention retention = Retention::kPreferSave) {
    evictor.ran(cost);
    const ValueId result = evictor.add_result(evictor.add_node(cost, inputs), bytes, retention);
    evictor.set_place(result, Place::kHeld);
    evictor.add_hook(result);
    for (const ValueId input : inputs) {
      evictor.used(input);
    }
    return result;
  }

  ValueId drop_next() {
    const ValueId victim = evictor.next_victim();
    if (victim != kNoId) {
      evictor.set_place(victim, Place::kNowhere);
    }
    return victim;
  }

  void pass_time(double time) { evictor.ran(time); }

  Evictor evictor;
  const ValueId input = evictor.add_outside(10, Place::kElsewhere);
};

TEST(EvictorTest, DropsWhatCostsLeastPerByte) {
  Program program;
  const ValueId dear = program.run(100, {program.input}, 10);
  const ValueId small = program.run(10, {program.input}, 1);
  const ValueId cheap = program.run(10, {program.input}, 10);
  const ValueId large = program.run(100, {program.input}, 50);
  program.pass_time(1e9);                 // beyond the horizon: all equally old
  EXPECT_EQ(program.drop_next(), cheap);  // 1 a byte
  EXPECT_EQ(program.drop_next(), large);  // 2
  EXPECT_EQ(program.drop_next(), dear);   // 10, older than the next
  EXPECT_EQ(program.drop_next(), small);  // 10
  EXPECT_EQ(program.drop_next(), kNoId);
  EXPECT_EQ(program.evictor.held_bytes(), 0);
}

TEST(EvictorTest, WithoutValuesThereIsNoVictim) {
  Evictor evictor({.budget = 100});
  EXPECT_EQ(evictor.next_victim(), kNoId);
  EXPECT_EQ(evictor.take_unneeded(), kNoId);
}

TEST(EvictorTest, DropsTheOldestOfEquals) {
  Program program;
  const ValueId first = program.run(10, {program.input}, 10);
  const ValueId second = program.run(10, {program.input}, 10);
  const ValueId third = program.run(10, {program.input}, 10);
  program.pass_time(10);
  program.evictor.used(first);
  EXPECT_EQ(program.drop_next(), second);
  EXPECT_EQ(program.drop_next(), third);
  EXPECT_EQ(program.drop_next(), first);
}

TEST(EvictorTest, AmongEqualsOfOneAgeTheSmallerIdGoesFirst) {
  Program program;
  std::vector<ValueId> values;
  for (int i = 0; i < 5; ++i) {
    values.push_back(program.run(10, {program.input}, 10));
  }
  program.pass_time(10);
  for (auto it = values.rbegin(); it != values.rend(); ++it) {
    program.evictor.used(*it);
  }
  for (const ValueId value : values) {
    EXPECT_EQ(program.drop_next(), value);
  }
}

TEST(EvictorTest, CountsTheAncestorsThatOnlyTheVictimWouldForce) {
  Program program;
  const ValueId hidden = program.run(100, {program.input}, 10);
  const ValueId child = program.run(1, {hidden}, 10);
  const ValueId other = program.run(50, {program.input}, 10);
  program.pass_time(1e9);
  // Nobody needs `hidden`: it goes for nothing, and `child` now costs 101.
  program.evictor.remove_hook(hidden);
  EXPECT_EQ(program.drop_next(), hidden);
  EXPECT_EQ(program.drop_next(), other);
  EXPECT_FALSE(program.evictor.is_needed(hidden));
  EXPECT_EQ(program.drop_next(), child);
  EXPECT_TRUE(program.evictor.is_needed(hidden));
}

TEST(EvictorTest, AnAncestorThatMustRunAnywayIsNotPaidTwice) {
  Program program;
  const ValueId hidden = program.run(100, {program.input}, 10);
  const ValueId one = program.run(1, {hidden}, 10);
  const ValueId two = program.run(1, {hidden}, 10);
  const ValueId other = program.run(60, {program.input}, 10);
  program.pass_time(1e9);
  program.evictor.remove_hook(hidden);
  program.evictor.set_place(hidden, Place::kNowhere);
  program.evictor.set_place(one, Place::kNowhere);
  EXPECT_EQ(program.drop_next(), two);
  EXPECT_EQ(program.drop_next(), other);
}

constexpr size_t kNoneTaken = ~size_t{0};

// Runs an op of cost 100 with results of these bytes and one without bytes that takes the result `taken`, if there is
// one, and drops the first.
std::vector<ValueId> run_and_drop_first(Program& program, const std::vector<int64_t>& bytes, size_t taken) {
  program.evictor.ran(100);
  const NodeId node = program.evictor.add_node(100, {program.input});
  std::vector<ValueId> results;
  for (const int64_t each : bytes) {
    results.push_back(program.evictor.add_result(node, each, Retention::kPreferSave));
    program.evictor.set_place(results.back(), Place::kHeld);
    program.evictor.add_hook(results.back());
  }
  if (taken != kNoneTaken) {
    program.run(0, {results[taken]}, 0);
  }
  program.evictor.set_place(results[0], Place::kNowhere);
  return results;
}

TEST(EvictorTest, ASecondResultOfAnOpThatMustRunAnywayIsNearlyFreeWhileThereIsRoomForBoth) {
  for (const size_t taken : {0, 1}) {
    Program program;
    const std::vector<ValueId> results = run_and_drop_first(program, {10, 10}, taken);
    const ValueId other = program.run(40, {program.input}, 10);
    program.pass_time(1e9);
    EXPECT_EQ(program.drop_next(), results[1]);  // half of 100, times 20 bytes of 1000
    EXPECT_EQ(program.drop_next(), other);
  }
}

TEST(EvictorTest, ASecondResultOfAnOpThatMustRunAnywayCostsHalfOfItWhileNoOpHasTakenEither) {
  Program program;
  const std::vector<ValueId> results = run_and_drop_first(program, {10, 10}, kNoneTaken);
  const ValueId cheaper = program.run(49, {program.input}, 10);
  const ValueId dearer = program.run(51, {program.input}, 10);
  program.pass_time(1e9);
  EXPECT_EQ(program.drop_next(), cheaper);
  EXPECT_EQ(program.drop_next(), results[1]);  // half of 100
  EXPECT_EQ(program.drop_next(), dearer);
}

TEST(EvictorTest, ASmallResultOfAnOpThatMustRunAnywayCostsWhatTheOthersLeaveNoRoomFor) {
  Program program;
  const std::vector<ValueId> results = run_and_drop_first(program, {790, 10}, 1);
  const ValueId other = program.run(39, {program.input}, 10);
  program.pass_time(1e9);
  EXPECT_EQ(program.drop_next(), other);  // half of 100, times 800 bytes of 1000
  EXPECT_EQ(program.drop_next(), results[1]);
}

TEST(EvictorTest, DropsWhatNobodyNeedsFirstAndTheLargestOfThat) {
  Program program;
  const ValueId cheap = program.run(0, {program.input}, 100);
  const ValueId small = program.run(100, {program.input}, 10);
  const ValueId large = program.run(100, {program.input}, 20);
  program.evictor.remove_hook(small);
  program.evictor.remove_hook(large);
  EXPECT_EQ(program.drop_next(), large);
  EXPECT_EQ(program.drop_next(), small);
  EXPECT_EQ(program.drop_next(), cheap);
}

TEST(EvictorTest, TakesOnlyWhatNobodyNeedsForNothing) {
  Program program;
  const ValueId value = program.run(1, {program.input}, 10);
  EXPECT_EQ(program.evictor.take_unneeded(), kNoId);
  program.evictor.remove_hook(value);
  EXPECT_EQ(program.evictor.take_unneeded(), value);
  EXPECT_EQ(program.evictor.take_unneeded(), kNoId);
}

TEST(EvictorTest, WhatAnEvictedChildNeedsIsKeptAndGoesWhenTheChildIsBack) {
  Program program;
  const ValueId parent = program.run(1, {program.input}, 10);
  const ValueId child = program.run(1, {parent}, 10);
  program.evictor.set_place(child, Place::kNowhere);
  program.evictor.remove_hook(parent);
  EXPECT_EQ(program.evictor.take_unneeded(), kNoId);
  program.evictor.set_place(child, Place::kHeld);
  EXPECT_EQ(program.evictor.take_unneeded(), parent);
}

TEST(EvictorTest, DropsWhatPoliciesPreferToRecomputeBeforeTheRest) {
  Program program;
  const ValueId saved = program.run(1, {program.input}, 100);
  const ValueId recomputed = program.run(1000, {program.input}, 1, Retention::kPreferRecompute);
  const ValueId later = program.run(2000, {program.input}, 1, Retention::kPreferRecompute);
  program.pass_time(1e9);
  EXPECT_EQ(program.drop_next(), recomputed);
  program.evictor.set_retention(later, Retention::kPreferSave);
  EXPECT_EQ(program.drop_next(), saved);
  EXPECT_EQ(program.drop_next(), later);
}

TEST(EvictorTest, NeverDropsWhatMustBeSavedIsPinnedOrLivesElsewhere) {
  Program program;
  const ValueId must = program.run(1, {program.input}, 100, Retention::kMustSave);
  const ValueId pinned = program.run(1, {program.input}, 50);
  const ValueId elsewhere = program.run(1, {program.input}, 25);
  program.evictor.pin(pinned);
  program.evictor.pin(pinned);
  program.evictor.set_place(elsewhere, Place::kElsewhere);
  EXPECT_EQ(program.drop_next(), kNoId);
  EXPECT_EQ(program.evictor.held_bytes(), 150);
  EXPECT_EQ(program.evictor.unevictable_bytes(), 150);
  program.evictor.remove_hook(must);
  EXPECT_EQ(program.drop_next(), kNoId);
  program.evictor.unpin(pinned);
  EXPECT_EQ(program.drop_next(), kNoId);
  program.evictor.unpin(pinned);
  EXPECT_EQ(program.evictor.unevictable_bytes(), 100);
  EXPECT_EQ(program.drop_next(), pinned);
  program.evictor.set_place(elsewhere, Place::kHeld);
  EXPECT_EQ(program.drop_next(), elsewhere);
  EXPECT_EQ(program.evictor.held_bytes(), 100);
}

// A step of which the test knows everything.
class KnownStep final : public Foresight {
 public:
  explicit KnownStep(double length) : length_(length) {}

  bool knows_uses() const override { return length_ > 0; }
  double next_use(ValueId value) const override { return next_uses.at(value); }
  double now() const override { return 20; }
  double step_length() const override { return length_; }
  double cost_factor(ValueId value) const override {
    const auto it = cost_factors.find(value);
    return it == cost_factors.end() ? 1 : it->second;
  }

  std::map<ValueId, double> next_uses, cost_factors;

 private:
  double length_;
};

TEST(EvictorTest, DropsTheValueWhoseNextUseIsFarthestIfTheStepIsKnown) {
  KnownStep step(/*length=*/100);
  Program program;
  program.evictor.consult({.foresight = &step});
  const ValueId near = program.run(10, {program.input}, 10);
  const ValueId far = program.run(10, {program.input}, 10);
  step.next_uses = {{near, 30}, {far, 90}};
  program.pass_time(1000);  // makes no difference
  EXPECT_EQ(program.drop_next(), far);
  program.evictor.set_place(far, Place::kHeld);
  step.next_uses[near] = 95;
  program.evictor.foresight_changed(near);
  EXPECT_EQ(program.drop_next(), near);
}

TEST(EvictorTest, AFactorMakesAValueDearerOrCheaperThanItsCost) {
  KnownStep step(/*length=*/0);
  Program program;
  program.evictor.consult({.foresight = &step});
  const ValueId one = program.run(10, {program.input}, 10);
  const ValueId two = program.run(20, {program.input}, 10);
  program.pass_time(1e9);
  step.cost_factors[one] = 4;
  EXPECT_EQ(program.drop_next(), two);
  EXPECT_EQ(program.drop_next(), one);
}

TEST(EvictorTest, AForgottenValuesIdIsUsedAgainWithoutItsPast) {
  Program program;
  const ValueId value = program.run(1, {program.input}, 10);
  program.evictor.pin(value);
  program.evictor.unpin(value);
  program.evictor.remove_hook(value);
  program.evictor.forget(value);
  EXPECT_EQ(program.evictor.held_bytes(), 0);
  EXPECT_EQ(program.evictor.next_victim(), kNoId);
  const ValueId again = program.run(1, {program.input}, 20);
  EXPECT_EQ(again, value);
  EXPECT_EQ(program.evictor.take_unneeded(), kNoId);
  EXPECT_EQ(program.drop_next(), again);
}

TEST(EvictorTest, MisuseIsAnError) {
  EXPECT_THROW(Evictor({.budget = 0}), std::logic_error);
  EXPECT_THROW(Evictor({.budget = -1}), std::logic_error);
  Program program;
  const ValueId value = program.run(1, {program.input}, 10);
  EXPECT_THROW(program.evictor.forget(program.input), std::logic_error);
  EXPECT_THROW(program.evictor.forget(value), std::logic_error);
  EXPECT_THROW(program.evictor.unpin(value), std::logic_error);
  EXPECT_THROW(program.evictor.remove_hook(program.input), std::logic_error);
  EXPECT_THROW(program.evictor.set_retention(program.input, Retention::kPreferSave), std::logic_error);
  EXPECT_THROW(program.evictor.add_outside(-1, Place::kHeld), std::logic_error);
}

// A graph whose nodes are noted as they are added.
class Needs {
 public:
  ValueId run(const std::vector<ValueId>& inputs, int64_t bytes) {
    const NodeId node = graph.add_node(1, inputs);
    const ValueId result = graph.add_result(node, bytes);
    needs.note(graph, node, nothing);
    return result;
  }
  int64_t bytes_for(ValueId value) const { return needs.bytes_for(graph, value); }
  std::vector<ValueId> order_for(ValueId value) const {
    const auto order = needs.order_for(graph, graph.value(value).producer, nothing);
    return {order.begin(), order.end()};
  }

  static bool nothing(ValueId /*value*/) { return false; }
  EvictorGraph graph;
  ReplayNeeds needs;
  const ValueId outside = graph.add_outside(1000);
};

TEST(ReplayNeedsTest, AnOpOfAChainTakesItsInputAndItsResult) {
  Needs program;
  ValueId value = program.run({program.outside}, 5);
  EXPECT_EQ(program.bytes_for(value), 5);
  value = program.run({value}, 7);
  EXPECT_EQ(program.bytes_for(value), 12);
  value = program.run({value}, 1);
  EXPECT_EQ(program.bytes_for(value), 12) << "the widest place of the chain";
}

TEST(ReplayNeedsTest, OfTwoBranchesTheOneThatTakesMoreIsGatheredFirst) {
  Needs program;
  const ValueId large = program.run({program.outside}, 10);
  const ValueId small = program.run({program.run({program.outside}, 20)}, 1);  // takes 21, leaves 1
  const ValueId both = program.run({large, small}, 10);
  EXPECT_EQ(program.bytes_for(both), 21);  // 1 + 10 + 10
  EXPECT_EQ(program.order_for(both), (std::vector<ValueId>{small, large}));
}

TEST(ReplayNeedsTest, AResidualIsGatheredBeforeWhatWasComputedFromIt) {
  Needs program;
  ValueId x = program.run({program.outside}, 10);
  for (int i = 0; i < 100; ++i) {
    const ValueId inner = program.run({program.run({x}, 10)}, 10);
    const ValueId sum = program.run({inner, x}, 10);
    EXPECT_EQ(program.order_for(sum), (std::vector<ValueId>{x, inner}));
    x = sum;
  }
  EXPECT_EQ(program.bytes_for(x), 30);
}

TEST(ReplayNeedsTest, WhatTwoInputsWereComputedFromStaysWhileBothAre) {
  Needs program;
  ValueId x = program.run({program.outside}, 10);
  for (int i = 0; i < 20; ++i) {
    const ValueId base = program.run({x}, 10);
    const ValueId left = program.run({program.run({base}, 10)}, 10), right = program.run({program.run({base}, 10)}, 10);
    x = program.run({left, right}, 10);
    EXPECT_EQ(program.order_for(x).front() == base, i > 0) << "at first it takes less to compute it twice";
  }
  EXPECT_EQ(program.bytes_for(x), 40);
}

TEST(EvictorTest, WhatWouldNotFitIfItCameBackIsTheLastVictimAndSparedIfAsked) {
  Program program({.budget = 20});
  const auto note = [&](ValueId value) {
    program.evictor.note_needs(program.evictor.graph().value(value).producer, /*fixed=*/0);
    return value;
  };
  const ValueId wide = note(program.run(1, {program.input}, 15));
  const ValueId narrow = note(program.run(1, {wide}, 10, Retention::kPreferRecompute));  // 25 with its input
  const ValueId dear = note(program.run(1000, {program.input}, 2));
  EXPECT_EQ(program.drop_next(), wide);
  EXPECT_EQ(program.drop_next(), dear);
  EXPECT_EQ(program.evictor.next_victim(/*spare_last=*/true), kNoId);
  EXPECT_EQ(program.drop_next(), narrow);
}

TEST(EvictorGraphTest, AMillionValuesInAChainTurnNeededAndBackWithoutRecursion) {
  EvictorGraph graph;
  ValueId last = graph.add_outside(1);
  for (int i = 0; i < 1'000'000; ++i) {
    last = graph.add_result(graph.add_node(1, {last}), 1);
  }
  graph.add_hook(last);
  EXPECT_EQ(graph.missing(), 1'000'000);
  graph.remove_hook(last);
  EXPECT_EQ(graph.missing(), 0);
  graph.set_resident(last);
  EXPECT_EQ(graph.turned_unneeded(), (std::vector<ValueId>{0, last}));
}

// --- random programs
// --------------------------------------------------------------------------------------------------

// Of the definition, over and over until nothing changes.
std::vector<bool> needed_by_definition(const EvictorGraph& graph) {
  std::vector<bool> needed(graph.value_limit());
  for (bool changed = true; changed;) {
    changed = false;
    for (ValueId id = 0; id < graph.value_limit(); ++id) {
      bool is_needed = graph.value(id).hooks > 0;
      for (const EvictorGraph::Use& use : graph.value(id).uses) {
        for (const ValueId result : graph.node(use.node).results) {
          is_needed |= needed[result] && !graph.value(result).resident;
        }
      }
      changed |= is_needed != needed[id];
      needed[id] = is_needed;
    }
  }
  return needed;
}

// A program that runs, releases, drops, brings back and forgets at random, as a runtime would.
class RandomProgram {
 public:
  explicit RandomProgram(uint32_t seed, RuleConstants rule = {})
      : random_(seed), evictor({.budget = 4000, .rule = rule}) {
    live_.push_back(evictor.add_outside(100, Place::kElsewhere));
    live_.push_back(evictor.add_outside(50, Place::kHeld));
  }

  void step() {
    switch (below(8)) {
      case 0:
      case 1:
      case 2:
        run();
        break;
      case 3:
        release();
        break;
      case 4:
      case 5:
        drop();
        break;
      case 6:
        bring_back();
        break;
      default:
        forget();
    }
  }

  void drop() {
    const ValueId victim = evictor.next_victim();
    if (victim != kNoId) {
      victims.push_back(victim);
      evictor.set_place(victim, Place::kNowhere);
    }
  }

 private:
  uint32_t below(size_t limit) { return static_cast<uint32_t>(random_() % limit); }
  ValueId any() { return live_[below(live_.size())]; }

  void run() {
    std::vector<ValueId> inputs;
    for (uint32_t i = 0; i <= below(3); ++i) {
      inputs.push_back(live_.size() > 8 && below(4) > 0 ? live_[live_.size() - 1 - below(8)] : any());
    }
    const double cost = 1 + below(1000);
    const NodeId node = evictor.add_node(cost, inputs);
    evictor.ran(cost);
    for (uint32_t i = 0; i <= below(2); ++i) {
      const ValueId result = evictor.add_result(node, 1 + below(500), Retention(below(3)));
      evictor.set_place(result, Place::kHeld);
      live_.push_back(result);
      if (below(4) > 0) {
        evictor.add_hook(result);
      }
    }
    for (const ValueId input : inputs) {
      evictor.used(input);
    }
  }

  void release() {
    const ValueId value = any();
    if (evictor.graph().value(value).hooks > 0) {
      evictor.remove_hook(value);
    }
  }

  void bring_back() {
    const ValueId value = any();
    evictor.set_place(value, evictor.place(value) == Place::kNowhere ? Place::kHeld : evictor.place(value));
    evictor.ran(5);
  }

  void forget() {
    const uint32_t i = below(live_.size());
    const EvictorGraph::Value& value = evictor.graph().value(live_[i]);
    if (value.producer != kNoId && value.hooks == 0 && value.uses.empty()) {
      evictor.forget(live_[i]);
      live_.erase(live_.begin() + i);
    }
  }

  std::mt19937 random_;
  std::vector<ValueId> live_;

 public:
  Evictor evictor;
  std::vector<ValueId> victims;
};

TEST(RandomProgramsTest, NeedednessKeptUpToDateIsThatOfTheDefinition) {
  for (uint32_t seed = 0; seed < 30; ++seed) {
    RandomProgram program(seed);
    for (int i = 0; i < 300; ++i) {
      program.step();
      const EvictorGraph& graph = program.evictor.graph();
      const std::vector<bool> expected = needed_by_definition(graph);
      int64_t missing = 0;
      int64_t held = 0;
      for (ValueId id = 0; id < graph.value_limit(); ++id) {
        ASSERT_EQ(graph.is_needed(id), expected[id]) << "seed " << seed << ", step " << i << ", value " << id;
        missing += expected[id] && !graph.value(id).resident;
        held += program.evictor.place(id) == Place::kHeld ? graph.value(id).bytes : 0;
      }
      ASSERT_EQ(graph.missing(), missing) << "seed " << seed << ", step " << i;
      ASSERT_EQ(program.evictor.held_bytes(), held) << "seed " << seed << ", step " << i;
    }
  }
}

TEST(RandomProgramsTest, TheSameCallsGiveTheSameVictims) {
  for (uint32_t seed = 0; seed < 10; ++seed) {
    RandomProgram one(seed);
    // Other addresses.
    std::vector<std::vector<char>> noise(seed, std::vector<char>(1000 * seed));
    RandomProgram two(seed);
    for (int i = 0; i < 1000; ++i) {
      one.step();
    }
    for (int i = 0; i < 1000; ++i) {
      two.step();
    }
    EXPECT_GT(one.victims.size(), 50U);
    EXPECT_EQ(one.victims, two.victims) << "seed " << seed;
  }
}

// The cost per byte of the dearest and the cheapest of one bucket are less than this apart.
constexpr double kBucketWidth = 1.05;

TEST(RandomProgramsTest, TheVictimIsTheBestOfAllOrAsGoodAsItIfAllWereScored) {
  int64_t choices = 0;
  int64_t missed = 0;
  for (uint32_t seed = 0; seed < 30; ++seed) {
    // Without a horizon age makes no difference.
    RandomProgram program(seed, {.horizon = 0});
    for (int i = 0; i < 400; ++i) {
      program.step();
      const ValueId victim = program.evictor.next_victim();
      const EvictorGraph& graph = program.evictor.graph();
      if (victim == kNoId || !graph.is_needed(victim)) {
        continue;
      }
      EvictionRule rule({}, 4000);
      const auto rate = [&](ValueId id) {
        return rule.cost_of_dropping(graph, id) / static_cast<double>(graph.value(id).bytes);
      };
      double best = rate(victim);
      const Retention retention = program.evictor.retention(victim);
      for (ValueId id = 0; id < graph.value_limit(); ++id) {
        if (graph.value(id).exists && graph.is_needed(id) && program.evictor.place(id) == Place::kHeld &&
            graph.value(id).producer != kNoId && program.evictor.retention(id) == retention) {
          best = std::min(best, rate(id));
        }
      }
      ++choices;
      missed += rate(victim) > best * kBucketWidth ? 1 : 0;
    }
  }
  EXPECT_GT(choices, 3000);
  // Costs that fell far away are noticed late.
  EXPECT_LT(static_cast<double>(missed), 0.02 * static_cast<double>(choices));
}

}  // namespace
}  // namespace ac2::internal

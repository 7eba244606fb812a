// Which values are copied to the host, and what is dropped or waited for where there is no room, on graphs whose times
// are computed by hand.
#include "ac2/internal/eviction/host_copies.h"

#include <gtest/gtest.h>

#include <limits>
#include <stdexcept>
#include <vector>

#include "ac2/internal/eviction/evictor.h"
#include "ac2/internal/eviction/foresight.h"
#include "benchmarks/simulator/step_foresight.h"
#include "benchmarks/simulator/step_simulator.h"

namespace ac2::internal {
namespace {

constexpr int64_t kBytes = 100;

// An evictor whose values may all be copied, a hundred bytes in a hundred units of cost unless set_speed() says
// otherwise.
class Program {
 public:
  enum class Speed { kKnown, kUnknown };

  explicit Program(Speed speed = Speed::kKnown) {
    evictor.consult({.foresight = &foresight, .copies = &copies});
    if (speed == Speed::kKnown) {
      copies.set_speed(1);
    }
  }

  ValueId run(double cost, const std::vector<ValueId>& inputs, int64_t bytes = kBytes) {
    evictor.ran(cost);
    const ValueId result = evictor.add_result(evictor.add_node(cost, inputs), bytes, Retention::kPreferSave);
    evictor.set_place(result, Place::kHeld);
    evictor.add_hook(result);
    copies.may_copy(result);
    for (const ValueId input : inputs) {
      evictor.used(input);
    }
    return result;
  }
  void pass_time(double time) {
    evictor.ran(time);
    copies.settle();
  }
  // The value that leaves, or kNoId.
  ValueId drop_next() {
    ValueId victim = evictor.next_victim();
    if (copies.is_worth_waiting_for(victim)) {
      victim = copies.wait_for_first();
    }
    if (victim != kNoId) {
      evictor.set_place(victim, copies.has_copy(victim) ? Place::kOnHost : Place::kNowhere);
    }
    return victim;
  }

  StepForesight foresight{evictor, 0};
  Evictor evictor{{.budget = 10'000}};
  FormCosts costs;
  HostCopies copies{evictor, foresight, costs};
  const ValueId input = evictor.add_outside(10, Place::kElsewhere);
};

TEST(HostCopiesTest, TheDearestForItsBytesIsCopiedFirst) {
  Program program;
  program.run(100, {program.input});
  const ValueId dear = program.run(1000, {program.input});
  const ValueId dearest = program.run(1000, {program.input}, kBytes / 2);
  program.pass_time(1000);
  EXPECT_EQ(program.copies.next(), dearest);
  program.copies.began(dearest);
  EXPECT_EQ(program.copies.next(), dear);
}

TEST(HostCopiesTest, WhatWasUsedWithinTheTimeOfBothCopiesIsNotCopied) {
  Program program;
  const ValueId value = program.run(1000, {program.input});
  program.pass_time(2 * kBytes - 1);
  EXPECT_EQ(program.copies.next(), kNoId);
  program.pass_time(1);
  EXPECT_EQ(program.copies.next(), value);
}

TEST(HostCopiesTest, TwoCopiesAreUnderWayAtMost) {
  Program program;
  const ValueId first = program.run(1000, {program.input});
  const ValueId second = program.run(900, {program.input});
  const ValueId third = program.run(800, {program.input});
  program.pass_time(1000);
  program.copies.began(first);
  program.copies.began(second);
  EXPECT_EQ(program.copies.next(), kNoId);
  program.pass_time(kBytes - 1);
  EXPECT_FALSE(program.copies.has_copy(first));
  program.pass_time(1);
  EXPECT_TRUE(program.copies.has_copy(first));
  EXPECT_FALSE(program.copies.has_copy(second));  // it begins when the first is done
  EXPECT_EQ(program.copies.next(), third);
  program.pass_time(kBytes);
  EXPECT_TRUE(program.copies.has_copy(second));
}

TEST(HostCopiesTest, AValueWithACopyLeavesBeforeOneThatMustBeComputedAgain) {
  Program program;
  const ValueId copied = program.run(1000, {program.input});
  const ValueId cheap = program.run(50, {program.input});
  program.pass_time(10'000);
  program.copies.began(copied);
  program.pass_time(kBytes);
  EXPECT_EQ(program.drop_next(), copied);
  EXPECT_EQ(program.evictor.place(copied), Place::kOnHost);
  EXPECT_EQ(program.evictor.held_bytes(), kBytes);
  EXPECT_EQ(program.evictor.on_host_bytes(), kBytes);
  EXPECT_EQ(program.drop_next(), cheap);
  EXPECT_EQ(program.evictor.place(cheap), Place::kNowhere);
}

TEST(HostCopiesTest, ACopyIsWaitedForWhereThatTakesLessTimeThanToComputeAgain) {
  Program program;
  const ValueId copied = program.run(10'000, {program.input});
  const ValueId dear = program.run(5'000, {program.input});
  program.pass_time(10'000);
  program.copies.began(copied);
  EXPECT_EQ(program.drop_next(), copied);
  EXPECT_EQ(program.copies.waited(), kBytes);
  EXPECT_EQ(program.evictor.place(dear), Place::kHeld);
}

TEST(HostCopiesTest, ACopyIsNotWaitedForWhereItTakesLongerThanToComputeAgain) {
  Program program;
  const ValueId copied = program.run(10'000, {program.input});
  const ValueId cheap = program.run(10, {program.input});
  program.pass_time(10'000);
  program.copies.began(copied);
  EXPECT_EQ(program.drop_next(), cheap);
  EXPECT_EQ(program.copies.waited(), 0);
  // There is nothing else.
  EXPECT_EQ(program.drop_next(), copied);
  EXPECT_EQ(program.copies.waited(), kBytes);
  EXPECT_EQ(program.drop_next(), kNoId);
}

TEST(HostCopiesTest, AWayBackThatDoesNotFitBesideTheOpsCounts) {
  Program program;
  const ValueId copied = program.run(1000, {program.input}, 1000);
  const ValueId other = program.run(500, {program.input}, 1000);
  program.pass_time(10'000);
  program.copies.began(copied);
  program.pass_time(1000);
  EXPECT_EQ(program.copies.cost_of_return(copied), 10);  // a hundredth: it was last used long ago
  program.evictor.used(copied);
  EXPECT_EQ(program.copies.cost_of_return(copied), 1000);  // backward may begin now, and take it at once
  program.pass_time(600);
  EXPECT_EQ(program.copies.cost_of_return(copied), 400);
  EXPECT_EQ(program.copies.cost_of_return(other), std::numeric_limits<double>::infinity());
}

TEST(HostCopiesTest, WhatIsCheaplyComputedIsNotCopiedBack) {
  Program program;
  const ValueId cheap = program.run(50, {program.input});
  const ValueId dear = program.run(500, {program.input});
  program.pass_time(1000);
  for (const ValueId value : {dear, cheap}) {
    program.copies.began(value);
    program.pass_time(kBytes);
    program.evictor.set_place(value, Place::kOnHost);
  }
  EXPECT_TRUE(program.copies.is_cheaper_to_compute(cheap));
  EXPECT_FALSE(program.copies.is_cheaper_to_compute(dear));
  EXPECT_TRUE(program.copies.is_cheaper_to_compute(dear, /*queued=*/1000));
}

TEST(HostCopiesTest, UntilTheSpeedIsKnownTheCallerSaysWhenACopyIsDone) {
  Program program(Program::Speed::kUnknown);
  const ValueId value = program.run(1000, {program.input});
  EXPECT_EQ(program.copies.next(), value);
  program.copies.began(value);
  program.evictor.ran(1e9);
  program.copies.settle();
  EXPECT_EQ(program.copies.first_under_way(), value);
  EXPECT_FALSE(program.copies.is_worth_waiting_for(value));
  EXPECT_TRUE(program.copies.is_worth_waiting_for(kNoId));
  program.copies.first_is_done();
  EXPECT_TRUE(program.copies.has_copy(value));
  EXPECT_EQ(program.copies.waited(), 0);
}

TEST(HostCopiesTest, ACopyThatIsUnderWayWhenTheSpeedIsFoundIsDoneByTheClock) {
  Program program(Program::Speed::kUnknown);
  const ValueId value = program.run(1000, {program.input});
  program.copies.began(value);
  program.copies.set_speed(1);
  program.evictor.ran(kBytes - 1);
  program.copies.settle();
  EXPECT_FALSE(program.copies.has_copy(value));
  program.evictor.ran(1);
  program.copies.settle();
  EXPECT_TRUE(program.copies.has_copy(value));
}

TEST(HostCopiesTest, AValueThatIsForgottenLeavesNoCopyAndNoPin) {
  Program program;
  const ValueId value = program.run(1000, {program.input});
  program.pass_time(1000);
  program.copies.began(value);
  program.copies.forget(value);
  EXPECT_EQ(program.copies.first_under_way(), kNoId);
  EXPECT_TRUE(program.evictor.may_drop(value));
  EXPECT_EQ(program.copies.next(), kNoId);
  program.copies.may_copy(value);
  EXPECT_EQ(program.copies.next(), value);
}

TEST(HostCopiesTest, WhatCannotBeComputedAgainIsRefused) {
  Program program;
  EXPECT_THROW(program.copies.may_copy(program.input), std::logic_error);
  EXPECT_THROW(program.copies.set_speed(0), std::logic_error);
  EXPECT_THROW(program.copies.first_is_done(), std::logic_error);
  const ValueId value = program.run(1000, {program.input});
  program.copies.forget(value);
  EXPECT_THROW(program.copies.began(value), std::logic_error);
}

// Values that are made one after the other, each from the one before, and taken in the reverse order.
RecordedStep forward_and_backward(int length, double cost) {
  RecordedStep step;
  const auto add_tensor = [&step](int64_t bytes, uint32_t op) {
    step.values.push_back({bytes, op == kNoId});
    step.tensors.push_back({static_cast<uint32_t>(step.values.size() - 1), op, kNoId});
    return static_cast<uint32_t>(step.tensors.size() - 1);
  };
  const auto run = [&](const std::vector<uint32_t>& arguments, int64_t bytes) {
    const auto op = static_cast<uint32_t>(step.ops.size());
    step.ops.push_back({.name = "op", .cost = cost, .arguments = arguments, .results = {}});
    const uint32_t result = add_tensor(bytes, op);
    step.ops.back().results = {result};
    step.events.push_back({RecordedStep::Event::kRuns, op});
    return result;
  };
  std::vector<uint32_t> made = {add_tensor(0, kNoId)};
  step.events.push_back({RecordedStep::Event::kAppears, 0});
  for (int i = 0; i < length; ++i) {
    made.push_back(run({made.back()}, kBytes));
  }
  uint32_t gradient = made[0];
  for (int i = length; i > 0; --i) {
    gradient = run({made[static_cast<size_t>(i)], gradient}, 0);
    step.events.push_back({RecordedStep::Event::kReleased, made[static_cast<size_t>(i)]});
  }
  return step;
}

TEST(HostCopiesTest, OfALongStepBesideAFastLinkTheFirstWayBackAloneIsWaitedFor) {
  const RecordedStep step = forward_and_backward(40, 1000);
  SimulatorOptions options{.budget = 20 * kBytes, .link_bytes_per_ns = 1};
  const StepResult copied = simulate(step, options);
  ASSERT_EQ(copied.outcome, StepResult::kCompleted);
  EXPECT_EQ(copied.waited, kBytes);
  EXPECT_EQ(copied.cost, step.cost() + kBytes);
  EXPECT_TRUE(copied.replayed.empty());
  EXPECT_GE(copied.copied_bytes, 2 * 20 * kBytes);
  EXPECT_LE(copied.peak_bytes, options.budget);
  options.link_bytes_per_ns = 0;
  EXPECT_GT(simulate(step, options).cost, 1.2 * step.cost());
}

TEST(HostCopiesTest, BesideASlowLinkAStepIsComputedAgain) {
  const RecordedStep step = forward_and_backward(40, 1000);
  SimulatorOptions options{.budget = 20 * kBytes, .link_bytes_per_ns = 1e-6};
  const StepResult copied = simulate(step, options);
  ASSERT_EQ(copied.outcome, StepResult::kCompleted);
  EXPECT_EQ(copied.waited, 0);
  options.link_bytes_per_ns = 0;
  EXPECT_LE(copied.cost, 1.1 * simulate(step, options).cost);
}

}  // namespace
}  // namespace ac2::internal

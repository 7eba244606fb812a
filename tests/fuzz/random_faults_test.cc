// Memory that runs out anywhere in random programs, in forward and in backward: the error must arrive, nothing be left,
// and the same program, run again, give what plain autograd gives.
//
//   ./bazelw run //tests/fuzz:random_faults_test -- --first_seed=0 --seeds=100000
#include <optional>
#include <sstream>

#include "tests/fuzz/campaign.h"
#include "tests/fuzz/compare.h"
#include "tests/fuzz/dice.h"
#include "tests/fuzz/functions.h"
#include "tests/fuzz/outcome.h"
#include "tests/fuzz/program.h"
#include "tests/support/failing_allocator.h"

namespace ac2::test {
namespace {

using RandomFaultsTest = CleanTest;

// Of a run in regions; 0 if it ends with an error.
int64_t allocations_of(const ProgramFn& program, uint32_t input_seed, const Way& way) {
  FailingAllocator& memory = FailingAllocator::install();
  const int64_t before = memory.allocations();
  const std::string error = run(program, input_seed, way, &way.setting).error;
  const int64_t allocations = memory.allocations() - before;
  let_engine_go(way.device);
  return error.empty() ? allocations : 0;
}

// Leaves out what the program does without a fault: random_programs_test looks at that.
std::string run_with_fault(const ProgramFn& program, uint32_t input_seed, const Way& way, int64_t allocations) {
  FailingAllocator& memory = FailingAllocator::install();
  const int64_t nodes_before = live_node_count();
  memory.fail_after(allocations);
  const std::string error = run(program, input_seed, way, &way.setting).error;
  const bool has_failed = memory.has_failed();
  memory.never_fail();
  std::ostringstream wrong;
  // There need not be one: under a budget the op is tried once more, and oneDNN goes another way where it gets no
  // memory.
  const bool is_the_fault = error.find(kOutOfMemoryAsTold) != std::string::npos && has_failed;
  if (!error.empty() && !is_the_fault && !(way.setting.budget > 0 && is_of_budget(error))) {
    wrong << (has_failed ? "after" : "without") << " a fault it says: " << error << "\n";
  }
  wrong << left_behind(way, nodes_before);
  return wrong.str();
}

Verdict compare_after_fault(const ProgramFn& program, uint32_t input_seed, const Way& way) {
  Verdict verdict;
  const int64_t allocations = allocations_of(program, input_seed, way);
  verdict.counts = allocations > 0;
  if (!verdict.counts) return verdict;
  Dice dice(input_seed);
  const std::string wrong = run_with_fault(program, input_seed, way, dice.roll(static_cast<uint32_t>(allocations)));
  if (!wrong.empty()) {
    verdict.difference = wrong;
    return verdict;
  }
  return compare(program, input_seed, way);
}

TEST_F(RandomFaultsTest, LeaveNothingBehindAndTheSameProgramRunsAgain) {
  const Tally tally = run_campaign({.seeds = 1500,
                                    .draw = &Way::draw,
                                    .judge = &compare_after_fault,
                                    .fixture = "RandomFaultsTest",
                                    .judge_name = "compare_after_fault"});
  EXPECT_GE(tally.compared, tally.programs / 2) << "of " << tally.programs;
}

// In forward; the program ends with what it has, which plain autograd gives that never began that step.
Verdict compare_up_to_fault(const ProgramFn& program, uint32_t input_seed, const Way& way) {
  FailingAllocator& memory = FailingAllocator::install();
  Verdict verdict;
  verdict.counts = false;
  const int64_t allocations = allocations_of(program, input_seed, way);
  if (allocations == 0) return verdict;
  const int64_t nodes_before = live_node_count();
  ProgramEnd end{.where_memory_runs_out = true};
  Way until_fault = way, until_step = way;
  until_fault.end = until_step.end = &end;
  Dice dice(input_seed);
  memory.fail_after(dice.roll(static_cast<uint32_t>(allocations)));
  const Outcome actual = run(program, input_seed, until_fault, &way.setting);
  memory.never_fail();
  verdict.difference = left_behind(way, nodes_before);
  if (!verdict.difference.empty() || !end.ended_at || (way.setting.budget > 0 && is_of_budget(actual.error))) {
    return verdict;
  }
  end = {.at_step = *end.ended_at};
  const Outcome expected = run(program, input_seed, until_step, nullptr);
  let_engine_go(way.device);
  if (!expected.error.empty()) return verdict;
  verdict.counts = true;
  verdict.replayed_ops = actual.replayed_ops;
  verdict.difference = differences(actual, expected);
  return verdict;
}

TEST_F(RandomFaultsTest, WhatWasMadeBeforeAFaultHasTheGradientsOfPlainAutograd) {
  const Tally tally = run_campaign({.seeds = 1500,
                                    .draw = &Way::draw,
                                    .judge = &compare_up_to_fault,
                                    .fixture = "RandomFaultsTest",
                                    .judge_name = "compare_up_to_fault",
                                    .limits = {.draws = false, .last_uses = false}});
  EXPECT_GE(tally.compared, tally.programs / 10) << "of " << tally.programs;
  EXPECT_GE(tally.replayed_ops, tally.compared);
}

}  // namespace
}  // namespace ac2::test

int main(int argc, char** argv) {
  return ac2::test::run_all_tests(argc, argv);
}

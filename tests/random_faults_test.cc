// Memory that runs out anywhere in random programs, in forward and in backward: the error must arrive, nothing be left,
// and the same program, run again, give what plain autograd gives.
//
//   ./bazelw run //tests:random_faults_test -- --first_seed=0 --seeds=100000
#include <optional>
#include <sstream>

#include "tests/random/campaign.h"
#include "tests/random/compare.h"
#include "tests/random/dice.h"
#include "tests/random/functions.h"
#include "tests/random/outcome.h"
#include "tests/random/program.h"
#include "tests/support/failing_allocator.h"

namespace ac2::test {
namespace {

using RandomFaultsTest = CleanTest;

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
  FailingAllocator& memory = FailingAllocator::install();
  const int64_t before = memory.allocations();
  Verdict verdict;
  if (!run(program, input_seed, way, &way.setting).error.empty()) {
    verdict.counts = false;
    return verdict;
  }
  left_behind(way, 0);
  const int64_t allocations = memory.allocations() - before;
  Dice dice(input_seed);
  const std::string wrong = run_with_fault(program, input_seed, way, dice.roll(static_cast<uint32_t>(allocations)));
  if (!wrong.empty()) {
    verdict.difference = wrong;
    return verdict;
  }
  return compare(program, input_seed, way);
}

TEST_F(RandomFaultsTest, LeaveNothingBehindAndTheSameProgramRunsAgain) {
  const Tally tally = run_campaign({.seeds = 3000,
                                    .draw = &Way::draw,
                                    .judge = &compare_after_fault,
                                    .fixture = "RandomFaultsTest",
                                    .judge_name = "compare_after_fault"});
  EXPECT_GE(tally.compared, tally.programs / 2) << "of " << tally.programs;
}

}  // namespace
}  // namespace ac2::test

int main(int argc, char** argv) {
  return ac2::test::run_all_tests(argc, argv);
}

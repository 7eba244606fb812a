// Random programs under a memory budget without a number, with memory that runs out again and again: in forward, in
// replays, in kernels of backward and outside of regions. Each time values are dropped and the allocation is tried
// again. Whatever comes out must be what plain autograd says.
//
//   ./bazelw run //tests/fuzz:random_shortage_test -- --first_seed=0 --seeds=100000
#include "ac2/internal/budget/whatever_fits.h"
#include "ac2/memory_budget.h"
#include "tests/fuzz/campaign.h"
#include "tests/fuzz/compare.h"
#include "tests/fuzz/dice.h"
#include "tests/fuzz/program.h"
#include "tests/support/failing_allocator.h"

namespace ac2::test {
namespace {

using RandomShortageTest = CleanTest;

Verdict compare_where_memory_runs_out(const ProgramFn& program, uint32_t input_seed, const Way& given) {
  FailingAllocator& memory = FailingAllocator::install();
  Way way = given;
  way.setting.budget = 1;  // that there is one; the shared one is it
  way.setting.shared_budget.emplace(whatever_fits(/*modelled_costs=*/true));
  internal::whatever_fits_budget(internal::CostSource::kModelled)->forget_limit();
  Dice dice(input_seed);
  memory.fail_each_after(1 + dice.roll(dice.roll(2) == 0 ? 3 : 40));
  Verdict verdict = compare(program, input_seed, way);
  memory.never_fail();
  return verdict;
}

TEST_F(RandomShortageTest, GiveWhatPlainAutogradGives) {
  const auto& budget = internal::whatever_fits_budget(internal::CostSource::kModelled);
  const int64_t drops = budget->hurried_drops();
  const Tally tally = run_campaign({.seeds = 3000,
                                    .draw = &Way::draw,
                                    .judge = &compare_where_memory_runs_out,
                                    .fixture = "RandomShortageTest",
                                    .judge_name = "compare_where_memory_runs_out"});
  EXPECT_GE(tally.compared, tally.programs / 2) << "of " << tally.programs;
  EXPECT_GE(budget->hurried_drops() - drops, tally.compared);
  EXPECT_GE(tally.replayed_ops, tally.compared);
}

}  // namespace
}  // namespace ac2::test

int main(int argc, char** argv) {
  return ac2::test::run_all_tests(argc, argv);
}

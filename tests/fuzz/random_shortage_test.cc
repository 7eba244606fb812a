// Random programs under a memory budget without a number, with memory that runs out again and again: in forward, in
// replays, in kernels of backward and outside of regions. Each time values are dropped and the allocation is tried
// again. The results must be those of plain autograd. Where memory has an end, an error about memory may come instead.
//
//   ./bazelw run //tests/fuzz:random_shortage_test -- --first_seed=0 --seeds=100000
#include <optional>

#include "ac2/internal/budget/whatever_fits.h"
#include "ac2/memory_budget.h"
#include "ac2/testing/counting_allocator.h"
#include "tests/fuzz/campaign.h"
#include "tests/fuzz/compare.h"
#include "tests/fuzz/dice.h"
#include "tests/fuzz/outcome.h"
#include "tests/fuzz/program.h"
#include "tests/support/failing_allocator.h"
#include "tests/support/limited_allocator.h"

namespace ac2::test {
namespace {

class RandomShortageTest : public CleanTest {
 protected:
  // Before ac2's own allocator, which stands in front of both.
  LimitedAllocator& limited_ = LimitedAllocator::install();
  FailingAllocator& failing_ = FailingAllocator::install();
};

Way with_whatever_fits(const Way& given) {
  Way way = given;
  way.setting.budget = 1;  // that there is one; the shared one is it
  way.setting.keeps = false;
  way.setting.shared_budget.emplace(whatever_fits(/*modelled_costs=*/true));
  internal::whatever_fits_budget(internal::CostSource::kModelled)->start_limit_anew();
  return way;
}

Verdict compare_where_memory_runs_out(const ProgramFn& program, uint32_t input_seed, const Way& given) {
  FailingAllocator& memory = FailingAllocator::install();
  const Way way = with_whatever_fits(given);
  Dice dice(input_seed);
  memory.fail_each_after(1 + dice.roll(dice.roll(2) == 0 ? 3 : 40));
  Verdict verdict = compare(program, input_seed, way);
  memory.never_fail();
  return verdict;
}

TEST_F(RandomShortageTest, GiveWhatPlainAutogradGives) {
  const auto& budget = internal::whatever_fits_budget(internal::CostSource::kModelled);
  const int64_t drops = budget->hurried_drops();
  const Tally tally = run_campaign({.seeds = 1500,
                                    .draw = &Way::draw,
                                    .judge = &compare_where_memory_runs_out,
                                    .fixture = "RandomShortageTest",
                                    .judge_name = "compare_where_memory_runs_out"});
  EXPECT_GE(tally.compared, tally.programs / 2) << "of " << tally.programs;
  EXPECT_GE(budget->hurried_drops() - drops, tally.compared);
  EXPECT_GE(tally.replayed_ops, tally.compared);
}

struct Ends {
  int64_t refused = 0;  // programs of which an allocation was refused, and which ended
  int64_t errors = 0;   // of these, with an error about memory
};
Ends& ends() {
  static Ends ends;
  return ends;
}

// There is about as much memory as the plain program had at its peak. Most of that is the program's own: a small part
// can be dropped, and replays need some more.
Verdict compare_where_memory_ends(const ProgramFn& program, uint32_t input_seed, const Way& given) {
  const Way way = with_whatever_fits(given);
  auto& counted = testing::CountingAllocator::install();
  const int64_t before = counted.current_bytes();
  counted.reset_peak();
  const Outcome expected = run(program, input_seed, way, nullptr);
  const int64_t peak = counted.peak_bytes() - before;
  let_engine_go(way.device);
  Verdict verdict;
  verdict.counts = expected.error.empty();
  if (!verdict.counts) return verdict;
  const int64_t nodes_before = live_node_count();
  Dice dice(input_seed);
  {
    std::optional<LimitedAllocator::Limit> limit;
    limit.emplace(LimitedAllocator::install(), peak * (90 + dice.roll(60)) / 100);
    const Outcome actual = run(program, input_seed, way, &way.setting);
    const bool was_refused = limit->refused() > 0;
    limit.reset();
    const bool is_of_memory = was_refused && actual.error.find("out of memory") != std::string::npos;
    ends().refused += was_refused ? 1 : 0;
    ends().errors += is_of_memory ? 1 : 0;
    verdict.replayed_ops = actual.replayed_ops;
    if (!is_of_memory) verdict.difference = differences(actual, expected);
  }
  verdict.difference += left_behind(way, nodes_before);
  return verdict;
}

TEST_F(RandomShortageTest, GiveTheBitsOfPlainAutogradOrAnErrorAboutMemoryWhereMemoryEnds) {
  ends() = {};
  const Tally tally = run_campaign({.seeds = 1000,
                                    .draw = &Way::draw,
                                    .judge = &compare_where_memory_ends,
                                    .fixture = "RandomShortageTest",
                                    .judge_name = "compare_where_memory_ends"});
  EXPECT_GE(tally.compared, tally.programs / 2) << "of " << tally.programs;
  EXPECT_GE(ends().refused, tally.compared / 10) << "of " << tally.compared;
  EXPECT_GE(ends().errors, ends().refused / 2) << "of " << ends().refused;
}

}  // namespace
}  // namespace ac2::test

int main(int argc, char** argv) {
  return ac2::test::run_all_tests(argc, argv);
}

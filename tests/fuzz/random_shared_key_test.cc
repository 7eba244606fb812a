// The random programs of random_programs_test in a process in which another library was behind ac2's dispatch key
// first.
//
//   ./bazelw run //tests/fuzz:random_shared_key_test -- --first_seed=0 --seeds=100000
#include "tests/fuzz/campaign.h"
#include "tests/fuzz/compare.h"
#include "tests/support/key_taker.h"

namespace ac2::test {
namespace {

using RandomSharedKeyTest = CleanTest;

TEST_F(RandomSharedKeyTest, ProgramsGiveWhatPlainAutogradGivesAndTheOtherLibrarySeesNothing) {
  const Tally tally = run_campaign({.seeds = 1000,
                                    .draw = &Way::draw,
                                    .judge = [](const auto&... program) { return compare(program...); },
                                    .fixture = "RandomSharedKeyTest",
                                    .judge_name = "compare"});
  EXPECT_GE(tally.compared, tally.programs / 2) << "of " << tally.programs;
  EXPECT_GE(tally.replayed_ops, tally.compared);
  EXPECT_EQ(fallback_calls(), 0);
}

}  // namespace
}  // namespace ac2::test

int main(int argc, char** argv) {
  return ac2::test::run_all_tests(argc, argv);
}

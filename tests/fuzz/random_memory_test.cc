// What random programs hold in regions that save everything: at every allocation, in forward and in backward, no
// more bytes than plain autograd.
//
//   ./bazelw run //tests/fuzz:random_memory_test -- --first_seed=0 --seeds=100000
#include <algorithm>
#include <functional>
#include <optional>
#include <sstream>
#include <vector>

#include "tests/fuzz/campaign.h"
#include "tests/fuzz/compare.h"
#include "tests/fuzz/functions.h"
#include "tests/fuzz/outcome.h"
#include "tests/fuzz/program.h"
#include "tests/support/allocation_log.h"

namespace ac2::test {
namespace {

using RandomMemoryTest = CleanTest;

Way saving_all(uint32_t seed) {
  Way way = Way::draw(seed);
  way.setting = {.policy = 1 + seed % 2, .must = 0, .inner_policies = false, .tags = false};
  return way;
}

Verdict compare_memory(const ProgramFn& program, uint32_t input_seed, const Way& way) {
  AllocationLog& log = AllocationLog::install();
  Verdict verdict;
  std::string error;
  const auto plain = log.during([&] { error = run(program, input_seed, way, nullptr).error; });
  let_engine_go(way.device);
  if (!error.empty()) {
    verdict.counts = false;
    return verdict;
  }
  const int64_t nodes_before = live_node_count();
  Outcome ended;
  const auto region = log.during([&] { ended = run(program, input_seed, way, &way.setting); });
  verdict.difference = ended.error + left_behind(way, nodes_before);
  if (ended.copied_bytes > 0) {
    // What it saved was overwritten, which plain autograd forbids only where backward comes to it.
    verdict.counts = false;
    return verdict;
  }
  // Fewer are right: a saved view that was made under no_grad keeps the history of its base in plain autograd.
  const bool as_many = region.size() == plain.size();
  const auto [here, there] = std::mismatch(region.begin(), region.begin() + std::min(region.size(), plain.size()),
                                           plain.begin(), std::less_equal<>());
  if (!as_many || here != region.end()) {
    std::ostringstream text;
    text << "the region makes " << region.size() << " allocations, plain autograd " << plain.size();
    if (here != region.end() && there != plain.end()) {
      text << "; after number " << here - region.begin() << " it holds " << *here << " bytes and not " << *there;
    }
    verdict.difference += text.str() + "\n";
  }
  return verdict;
}

TEST_F(RandomMemoryTest, IsNeverMoreThanPlainAutogradsWhereEverythingIsSaved) {
  const Tally tally = run_campaign({.seeds = 3000,
                                    .draw = &saving_all,
                                    .judge = &compare_memory,
                                    .fixture = "RandomMemoryTest",
                                    .judge_name = "compare_memory",
                                    // A region holds the bytes that it has read, plain autograd the tensor.
                                    .limits = {.moves = false}});
  EXPECT_GE(tally.compared, tally.programs / 2) << "of " << tally.programs;
}

}  // namespace
}  // namespace ac2::test

int main(int argc, char** argv) {
  return ac2::test::run_all_tests(argc, argv);
}

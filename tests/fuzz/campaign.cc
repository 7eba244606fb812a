#include "tests/fuzz/campaign.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <iostream>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "tests/fuzz/reduce.h"

ABSL_FLAG(uint32_t, first_seed, 0, "The first program's seed");
ABSL_FLAG(uint32_t, seeds, 0, "How many programs are run, one for each seed from --first_seed on; 0: as many as in CI");

namespace ac2::test {

SeedRange seeds_to_run(uint32_t in_ci) {
  const uint32_t count = absl::GetFlag(FLAGS_seeds);
  return {absl::GetFlag(FLAGS_first_seed), count != 0 ? count : in_ci};
}

Tally run_campaign(const Campaign& campaign) {
  const auto [first, count] = seeds_to_run(campaign.seeds);
  Tally tally;
  while (tally.programs < count) {
    const uint32_t seed = first + tally.programs++;
    Program program = Program::draw(seed);
    program.limits = campaign.limits;
    const Way way = campaign.draw(seed);
    const Verdict verdict = campaign.judge(program, seed, way);
    tally.compared += verdict.counts;
    tally.replayed_ops += verdict.replayed_ops;
    tally.evicted_values += verdict.evicted_values;
    tally.offloaded_bytes += verdict.offloaded_bytes;
    if (!verdict.difference.empty()) {
      const Program fewest = reduced(
          program, [&](const Program& candidate) { return !campaign.judge(candidate, seed, way).difference.empty(); });
      ADD_FAILURE() << "program " << seed << ":\n"
                    << campaign.judge(fewest, seed, way).difference
                    << as_test(fewest, seed, way, campaign.fixture, campaign.judge_name);
      break;
    }
    if (tally.programs % 10000 == 0) std::cerr << tally.programs << " programs\n";
  }
  std::cerr << tally.compared << " of " << tally.programs << " programs compared, " << tally.replayed_ops
            << " ops replayed, " << tally.evicted_values << " values evicted, " << tally.offloaded_bytes
            << " bytes offloaded\n";
  return tally;
}

int run_all_tests(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  absl::ParseCommandLine(argc, argv);
  at::set_num_threads(1);
  return RUN_ALL_TESTS();
}

}  // namespace ac2::test

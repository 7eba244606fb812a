// Many random programs, one after the other.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "tests/fuzz/compare.h"
#include "tests/fuzz/program.h"

namespace ac2::test {

// The programs of a campaign: drawn under the ways that `draw` says, judged by `judge`, which a printed test calls by
// `judge_name`.
struct Campaign {
  uint32_t seeds = 0;  // how many, if --seeds does not say so
  std::function<Way(uint32_t seed)> draw;
  std::function<Verdict(const ProgramFn& program, uint32_t input_seed, const Way& way)> judge;
  std::string fixture;
  std::string judge_name;
  Limits limits = {};
};

struct Tally {
  uint32_t programs = 0;
  uint32_t compared = 0;
  int64_t replayed_ops = 0;
  int64_t evicted_values = 0;
  int64_t offloaded_bytes = 0;
};

// The seeds that --first_seed and --seeds give, or from 0 on as many as in CI.
struct SeedRange {
  uint32_t first = 0;
  uint32_t count = 0;
};
SeedRange seeds_to_run(uint32_t in_ci);

// One program for each seed from --first_seed on. A program that differs is a failure, reduced to the fewest steps that
// still do and printed as a test to paste, and the last that is run.
Tally run_campaign(const Campaign& campaign);

// For main(): reads the command line, and gives ops one thread each, which is many times faster for tensors this small.
int run_all_tests(int argc, char** argv);

}  // namespace ac2::test

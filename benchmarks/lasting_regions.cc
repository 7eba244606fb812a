// The bytes that one region around a whole loop holds after a few rounds and after many, for loops that carry a state:
//
//   lasting_regions [FEW] [MANY]      20 and 400 rounds
//
// Nodes and bytes are those of stats(), the same on every machine.
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "ac2/scope.h"
#include "ac2/trace.h"
#include "benchmarks/networks/loops.h"
#include "examples/table.h"

namespace {

std::string kibibytes(int64_t bytes) {
  return gpt::fixed(static_cast<double>(bytes) / 1024, 1) + " KiB";
}

// A row of the table.
std::vector<std::string> measure(const benchmarks::Loop& loop, const std::string& policy, int few, int many) {
  const benchmarks::Rounds rounds = loop.begin();
  const ac2::PolicyScope scope{ac2::Policy(policy)};
  std::vector<ac2::TraceStats> stats;
  for (int round = 1; round <= many; ++round) {
    rounds.round();
    if (round == few || round == many) stats.push_back(scope.trace()->stats());
  }
  return {loop.name, absl::StrCat(stats.front().live_nodes), absl::StrCat(stats.back().live_nodes),
          kibibytes(stats.front().saved_bytes), kibibytes(stats.back().saved_bytes)};
}

}  // namespace

int main(int argc, char** argv) {
  int few = 20, many = 400;
  if (argc > 3 || (argc > 1 && !absl::SimpleAtoi(argv[1], &few)) || (argc > 2 && !absl::SimpleAtoi(argv[2], &many)) ||
      few < 1 || many <= few) {
    std::cerr << "lasting_regions: expected two numbers of rounds, the first at least 1 and the second larger, as in "
                 "lasting_regions 20 400\n";
    return EXIT_FAILURE;
  }
  for (const char* policy : {"recompute_all", "save_compute_intensive"}) {
    std::cout << '\n' << policy << "\n\n";
    std::vector<std::vector<std::string>> rows;
    for (const benchmarks::Loop& loop : benchmarks::loops()) rows.push_back(measure(loop, policy, few, many));
    gpt::print_table(std::cout,
                     {"each round", absl::StrCat("nodes at ", few), absl::StrCat("at ", many),
                      absl::StrCat("held at ", few), absl::StrCat("at ", many)},
                     rows);
  }
  return EXIT_SUCCESS;
}

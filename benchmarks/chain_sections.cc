// A chain under a policy in sections that callgrind can tell apart; see chain.h. count_instructions.sh makes a table of
// them. With the name of a section behind the policy, it has only that one, for a profile:
//
//   chain=bazel-bin/benchmarks/chain_sections
//   valgrind --tool=callgrind --toggle-collect=counted_section $chain cos recompute_all forward
#include <ATen/Parallel.h>

#include <cstdio>
#include <cstdlib>
#include <functional>

#include "benchmarks/chain.h"
#include "examples/checkpointing.h"

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: chain_sections cos|mul POLICY [forward|backward]\n");
    return EXIT_FAILURE;
  }
  at::set_num_threads(1);
  const gpt::Checkpointing checkpointing = gpt::checkpointing_by_name(argv[2]);
  benchmarks::run_counted_sections(argv[1], argc > 3 ? argv[3] : "", [&](const std::function<void()>& forward) {
    gpt::checkpointed(checkpointing, forward);
  });
  return EXIT_SUCCESS;
}

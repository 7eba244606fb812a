// A chain under a policy in sections that callgrind can tell apart; see chain.h. count_instructions.sh makes a table of
// them. Policies are train_gpt's, and `function` and `function_that_drops_nothing`, which are a program's own. With the
// name of a section behind the policy, it has only that one, for a profile:
//
//   chain=bazel-bin/benchmarks/chain_sections
//   valgrind --tool=callgrind --toggle-collect=counted_section $chain cos recompute_all forward
#include <ATen/Parallel.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string_view>

#include "ac2/ac2.h"
#include "benchmarks/chain.h"
#include "examples/checkpointing.h"

namespace {

// Policies as a program writes them, which decide nothing else than recompute_all. Null for other names.
std::optional<ac2::Policy> function_by_name(std::string_view name) {
  const ac2::Policy function = [](const ac2::OpContext&) { return ac2::CheckpointPolicy::PREFER_RECOMPUTE; };
  if (name == "function") return function;
  if (name != "function_that_drops_nothing") return std::nullopt;
  return ac2::policy_per_region([function] {
    ac2::PolicyInstance instance = enter_policy(function);
    instance.may_drop_tensors = false;
    return instance;
  });
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: chain_sections cos|mul POLICY [forward|backward]\n");
    return EXIT_FAILURE;
  }
  at::set_num_threads(1);
  const std::optional<ac2::Policy> function = function_by_name(argv[2]);
  const gpt::Checkpointing checkpointing = function ? gpt::Checkpointing() : gpt::checkpointing_by_name(argv[2]);
  benchmarks::run_counted_sections(argv[1], argc > 3 ? argv[3] : "", [&](const std::function<void()>& forward) {
    if (function) {
      ac2::apply_ac_policy_fn(forward, *function);
    } else {
      gpt::checkpointed(checkpointing, forward);
    }
  });
  return EXIT_SUCCESS;
}

// Three ops `cos` in a row in a region, of which the results are recomputed: all of them, or one that a budget drops.
// tools/files_of_one_op.py lists the files whose functions run meanwhile.
//
//   bazel-bin/benchmarks/one_cos recompute_all
//   bazel-bin/benchmarks/one_cos budget
//
// What counts is forward, from the first `cos` to the end of the last, and backward. The region is opened and closed
// outside of that.
#include <ATen/Parallel.h>
#include <torch/torch.h>

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "ac2/ac2.h"
#include "benchmarks/counted_section.h"

namespace {

// Of what a `cos` saves.
constexpr int64_t kElements = 1024;
constexpr int64_t kBytes = kElements * static_cast<int64_t>(sizeof(float));

void open(std::optional<ac2::PolicyScope>& scope, bool has_budget) {
  if (has_budget) {
    // The first `cos` saves a tensor from outside, which does not count. There is room for what one of the others
    // saves.
    scope.emplace(ac2::ScopeOptions{.memory_budget = kBytes + kBytes / 2});
  } else {
    scope.emplace("recompute_all");
  }
}

// How many ops were replayed.
template <class Section>
int64_t run(bool has_budget, Section&& section) {
  const at::Tensor x = torch::ones({kElements}, torch::requires_grad()) * 2;  // a leaf would be a case of its own
  const at::Tensor gradient = torch::ones({kElements});
  at::Tensor y;
  std::optional<ac2::PolicyScope> scope;
  open(scope, has_budget);
  const auto trace = scope->trace();
  section([&] { y = x.cos().cos().cos(); });
  scope.reset();
  section([&] { torch::autograd::grad({y}, {x}, {gradient}); });
  return trace->stats().recomputed_ops;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view name = argc == 2 ? argv[1] : "";
  if (name != "recompute_all" && name != "budget") {
    std::fprintf(stderr, "usage: one_cos recompute_all|budget\n");
    return EXIT_FAILURE;
  }
  at::set_num_threads(1);
  const bool has_budget = name == "budget";
  // The first run is not counted: what happens once in a process is on no op's way.
  run(has_budget, [](const auto& body) { body(); });
  std::printf("%ld\n", static_cast<long>(run(has_budget, [](const auto& body) { counted_section(body); })));
  return EXIT_SUCCESS;
}

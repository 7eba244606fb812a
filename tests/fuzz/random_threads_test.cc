// Random programs on several threads at once, on tensors that one program made before them: each has regions of its
// own, all replay what the first recorded. Half of them share one memory budget. Whatever comes out must be what plain
// autograd says, one program after the other.
//
//   ./bazelw run //tests/fuzz:random_threads_test -- --first_seed=0 --seeds=100000
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <barrier>
#include <future>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "tests/fuzz/campaign.h"
#include "tests/fuzz/compare.h"
#include "tests/fuzz/functions.h"
#include "tests/fuzz/outcome.h"
#include "tests/fuzz/program.h"

#if defined(__SANITIZE_THREAD__)
// Nodes of several threads that lead to the same one all write there that it has a parent: true, and nothing else. This
// is in a header of LibTorch's, and so in our own autograd functions.
extern "C" const char* __tsan_default_suppressions() {
  return "race:torch::autograd::Node::topological_nr\n";
}
#endif

namespace ac2::test {
namespace {

using RandomThreadsTest = CleanTest;

constexpr size_t kThreads = 3;

// The tensors that each thread starts from: the same tensors, in an order of its own.
struct Prefix {
  Tensors leaves, made;
  // Alive all the time: who finds none makes one, and takes a number for it.
  std::vector<decltype(torch::autograd::Edge::function)> accumulators;
  std::unique_ptr<Regions> regions;

  Prefix(const ProgramFn& program, uint32_t input_seed, const Setting* setting)
      : leaves(inputs_of(input_seed)), regions(std::make_unique<Regions>(setting)) {
    for (const at::Tensor& leaf : leaves) {
      if (leaf.requires_grad()) accumulators.push_back(torch::autograd::impl::grad_accumulator(leaf));
    }
    made = program(leaves, *regions);
    made.insert(made.end(), leaves.begin(), leaves.end());
  }
  Tensors start_of(size_t thread) const {
    Tensors tensors = made;
    std::rotate(tensors.begin(), tensors.begin() + static_cast<std::ptrdiff_t>(thread % made.size()), tensors.end());
    return tensors;
  }
};

std::vector<Outcome> run_threads(const ProgramFn& program, const Prefix& prefix, const Way& way, const Setting* setting,
                                 bool at_once) {
  std::vector<Outcome> outcomes(kThreads);
  std::vector<std::thread> threads;
  std::barrier together(at_once ? kThreads : 1);
  for (size_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      // It belongs to all threads: one would use, and run backward through, what another has cast.
      at::autocast::set_autocast_cache_enabled(false);
      together.arrive_and_wait();
      outcomes[i] = run_on(program, prefix.start_of(i), prefix.leaves, way, setting);
      let_engine_go(way.device);
    });
    if (!at_once) threads.back().join();
  }
  for (std::thread& thread : threads) {
    if (thread.joinable()) thread.join();
  }
  return outcomes;
}

// All on new threads: autograd takes nodes in the order of numbers that each thread counts for itself.
template <class Fn>
auto on_new_thread(const Fn& fn) {
  return std::async(std::launch::async, fn).get();
}

std::vector<Outcome> plain_one_after_the_other(const ProgramFn& program, uint32_t input_seed, const Way& way) {
  return on_new_thread(
      [&] { return run_threads(program, Prefix(program, input_seed, nullptr), way, nullptr, /*at_once=*/false); });
}

// The region of the first program is open meanwhile, or not.
std::vector<Outcome> in_regions_at_once(const ProgramFn& program, uint32_t input_seed, const Way& way) {
  return on_new_thread([&] {
    Prefix prefix(program, input_seed, &way.setting);
    if (input_seed % 2 == 0) prefix.regions.reset();
    return run_threads(program, prefix, way, &way.setting, /*at_once=*/true);
  });
}

// With every other seed all programs share one budget.
Way with_budget(uint32_t seed, Way way) {
  if (way.setting.budget > 0 && seed % 4 >= 2) {
    way.setting.budget *= kThreads + 1;
    way.setting.shared_budget.emplace(way.setting.budget);
  }
  return way;
}

Verdict compare_threads(const ProgramFn& program, uint32_t input_seed, const Way& given) {
  const Way way = with_budget(input_seed, given);
  Verdict verdict;
  std::vector<Outcome> expected, actual;
  try {
    expected = plain_one_after_the_other(program, input_seed, way);
  } catch (const std::exception&) {
    verdict.counts = false;
  }
  let_engine_go(way.device);
  for (const Outcome& outcome : expected) verdict.counts &= outcome.error.empty();
  if (!verdict.counts) return verdict;
  const int64_t nodes_before = live_node_count();
  try {
    actual = in_regions_at_once(program, input_seed, way);
  } catch (const std::exception& error) {
    verdict.counts = false;
    if (way.setting.budget == 0 || !is_of_budget(error.what())) verdict.difference = error.what();
  }
  for (size_t i = 0; i < actual.size(); ++i) {
    verdict.replayed_ops += actual[i].replayed_ops;
    verdict.evicted_values += actual[i].evicted_values;
    if (way.setting.budget > 0 && is_of_budget(actual[i].error)) {
      verdict.counts = false;
    } else {
      const std::string difference = differences(actual[i], expected[i]);
      if (!difference.empty()) verdict.difference += "thread " + std::to_string(i) + ": " + difference;
    }
  }
  actual.clear();
  verdict.difference += left_behind(way, nodes_before);
  return verdict;
}

TEST_F(RandomThreadsTest, GiveWhatPlainAutogradGivesOneAfterTheOther) {
  const Tally tally =
      run_campaign({.seeds = 500,
                    .draw = &Way::draw,
                    .judge = &compare_threads,
                    .fixture = "RandomThreadsTest",
                    .judge_name = "compare_threads",
                    .limits = {.draws = false, .hooks_inputs = false, .moves = false, .dtypes = false}});
  EXPECT_GE(tally.compared, tally.programs / 3) << "of " << tally.programs;
  EXPECT_GE(tally.replayed_ops, tally.compared);
}

}  // namespace
}  // namespace ac2::test

int main(int argc, char** argv) {
  return ac2::test::run_all_tests(argc, argv);
}

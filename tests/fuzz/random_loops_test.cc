// Loops drawn at random in one region that lasts: training with several optimizers, state carried over rounds,
// averages, sums, caches, roll-outs, rounds that end early. They compute what they compute without a region, and what
// the region holds does not grow with the number of rounds.
//
//   ./bazelw run //tests/fuzz:random_loops_test -- --first_seed=0 --seeds=10000
// Of a loop that fails, the steps that it takes to fail are printed.
#include <algorithm>
#include <cstring>
#include <functional>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/fuzz/campaign.h"
#include "tests/fuzz/loop_program.h"
#include "tests/support/regions.h"

namespace ac2::test {
namespace {

using RandomLoopsTest = CleanTest;

// ac2/internal/tape/anchors.h: with less than this in a region nobody looks for what is no longer needed.
constexpr int64_t kNodes = 1024;
constexpr int64_t kBytes = int64_t{1} << 20;
// A look is taken at every 64th node.
constexpr int64_t kInterval = 64;
// A look may fall where what is carried over cannot be told from a graph that lives. Others follow, drawn at random.
constexpr int64_t kLooks = 2;

// A loop is run for so many periods and for twice as many: lists are full and optimizers have their state by then, and
// what goes by the number of the round or changes places is where it was.
constexpr int kPeriods = 8;
// Where no backward ends what a region knows: for so many ops and twice as many.
constexpr int64_t kOps = 10000;
constexpr int kMostFailures = 5;

struct Sizes {
  int64_t nodes, bytes;
};

// The outcome of a loop.
struct LoopOutcome {
  std::string error;  // empty if nothing was thrown
  Tensors carried;
  std::vector<float> losses;
  at::Tensor generator;
  // At the end of each period; of a run in a region.
  std::vector<Sizes> sizes;
  std::vector<int64_t> backwards;
  bool graph_outlived_backward = false;
  int64_t recorded_ops = 0, recomputed_ops = 0;
};

struct LoopVerdict {
  bool counts = true;
  bool is_exact = false;
  std::string difference;
  int64_t recomputed_ops = 0;
};

std::unique_ptr<PolicyScope> open(uint32_t policy) {
  switch (policy % 4) {
    case 0:
      return std::make_unique<PolicyScope>("recompute_all");
    case 1:
      return std::make_unique<PolicyScope>("save_compute_intensive");
    case 2:
      return std::make_unique<PolicyScope>("must_save_all");
    default:
      return std::make_unique<PolicyScope>(ScopeOptions{.memory_budget = int64_t{1} << 22, .modelled_costs = true});
  }
}

const char* name_of(uint32_t policy) {
  static constexpr const char* kNames[] = {"recompute_all", "save_compute_intensive", "must_save_all", "a budget"};
  return kNames[policy % 4];
}

// Runs whole periods; `policy` is null without a region.
LoopOutcome run(const LoopProgram& program, int periods, const uint32_t* policy) {
  LoopOutcome outcome;
  LoopState state = program.begin();
  try {
    std::unique_ptr<PolicyScope> scope;
    if (policy != nullptr) scope = open(*policy);
    for (int i = 0; i < periods * program.period; ++i) {
      program.round(state, i);
      if ((i + 1) % program.period != 0 || !scope) continue;
      const TraceStats stats = scope->trace()->stats();
      outcome.sizes.push_back({stats.live_nodes, stats.saved_bytes});
      outcome.backwards.push_back(state.backwards);
      outcome.recorded_ops = stats.recorded_ops;
      outcome.recomputed_ops = stats.recomputed_ops;
    }
    scope.reset();
    // The pending losses have their backward after the region.
    if (state.loss.defined()) state.loss.backward();
  } catch (const c10::Error& error) {
    outcome.error = error.what_without_backtrace();
  }
  outcome.graph_outlived_backward = state.graph_outlived_backward;
  outcome.losses = state.losses;
  for (const at::Tensor& t : state.carried()) outcome.carried.push_back(t.defined() ? t.detach().clone() : t);
  outcome.generator = generator_state();
  return outcome;
}

std::string differences(const LoopOutcome& actual, const LoopOutcome& expected) {
  std::ostringstream text;
  if (!actual.error.empty()) text << "  the region throws: " << actual.error << "\n";
  if (actual.carried.size() != expected.carried.size() || actual.losses.size() != expected.losses.size()) {
    text << "  other numbers of tensors or losses\n";
    return text.str();
  }
  for (size_t i = 0; i < actual.losses.size(); ++i) {
    if (std::memcmp(&actual.losses[i], &expected.losses[i], sizeof(float)) != 0) {
      text << "  loss " << i << " is " << actual.losses[i] << ", expected " << expected.losses[i] << "\n";
      break;
    }
  }
  for (size_t i = 0; i < actual.carried.size(); ++i) {
    if (const auto same = same_bits(actual.carried[i], expected.carried[i]); !same) {
      text << "  carried tensor " << i << ": " << same.message() << "\n";
    }
  }
  if (!same_bits(actual.generator, expected.generator)) text << "  the default generator's state\n";
  return text.str();
}

int64_t max_of(const std::vector<Sizes>& sizes, size_t from, size_t to, int64_t Sizes::*which) {
  int64_t most = 0;
  for (size_t i = from; i < to; ++i) most = std::max(most, sizes[i].*which);
  return most;
}

// Equal sizes after `periods` periods and after twice as many.
std::string changes(const LoopOutcome& outcome, size_t periods) {
  const Sizes once = outcome.sizes[periods - 1], twice = outcome.sizes[2 * periods - 1];
  std::ostringstream text;
  if (once.nodes != twice.nodes) text << "  nodes: " << once.nodes << ", later " << twice.nodes << "\n";
  if (once.bytes != twice.bytes) text << "  bytes: " << once.bytes << ", later " << twice.bytes << "\n";
  return text.str();
}

// In the second half no more than in the first, or than the bound.
std::string growth(const LoopOutcome& outcome, int64_t nodes_bound, int64_t bytes_bound) {
  const size_t half = outcome.sizes.size() / 2;
  std::ostringstream text;
  const auto say = [&](const char* what, int64_t bound, int64_t Sizes::*which) {
    const int64_t before = max_of(outcome.sizes, 0, half, which);
    const int64_t later = max_of(outcome.sizes, half, 2 * half, which);
    if (later <= std::max(before, bound)) return;
    text << "  " << what << ": at most " << before << ", in as many rounds more " << later << ", which is more than "
         << bound << "\n";
  };
  say("nodes", nodes_bound, &Sizes::nodes);
  say("bytes", bytes_bound, &Sizes::bytes);
  return text.str();
}

// Whether in each period a backward has ended all graphs that there were.
bool ends_all_graphs(const LoopOutcome& outcome) {
  const auto& counts = outcome.backwards;
  return !outcome.graph_outlived_backward &&
         std::adjacent_find(counts.begin(), counts.end(), std::greater_equal<>()) == counts.end();
}

LoopVerdict judge(const LoopProgram& program, uint32_t policy) {
  LoopVerdict verdict;
  const auto compare = [&](int periods) -> LoopOutcome {
    const LoopOutcome plain = run(program, periods, nullptr);
    if (!plain.error.empty()) {
      verdict.counts = false;
      return plain;
    }
    const int64_t nodes_before = live_node_count();
    LoopOutcome outcome = run(program, periods, &policy);
    verdict.difference += differences(outcome, plain);
    verdict.recomputed_ops += outcome.recomputed_ops;
    if (live_node_count() != nodes_before) {
      verdict.difference += "  nodes left: " + std::to_string(live_node_count() - nodes_before) + "\n";
    }
    return outcome;
  };
  const LoopOutcome few = compare(2 * kPeriods);
  if (!verdict.counts || !verdict.difference.empty()) return verdict;
  verdict.is_exact = ends_all_graphs(few);
  if (verdict.is_exact) {
    const std::string changed = changes(few, kPeriods);
    // A region is not told of a backward that wants nothing of it, because the whole graph was made without the region.
    // Then the region grows until it looks.
    if (changed.empty() || !program.leaves_region()) {
      verdict.difference += changed;
      return verdict;
    }
    verdict.is_exact = false;
  }
  const int64_t ops = few.recorded_ops / (2 * kPeriods);
  if (ops == 0) return verdict;
  const LoopOutcome many = compare(static_cast<int>(2 * (kOps / ops + 1)));
  if (verdict.difference.empty()) {
    // Beside the bound there is what one period records, which autograd may want, and what comes until the next look.
    verdict.difference +=
        growth(many, kLooks * kNodes + kInterval + ops, kLooks * kBytes + kInterval * kLargeBatchBytes);
  }
  return verdict;
}

LoopProgram reduced(LoopProgram program, uint32_t policy) {
  for (bool shrank = true; shrank;) {
    shrank = false;
    for (size_t i = 0; i < program.steps.size();) {
      LoopProgram candidate = program;
      candidate.steps.erase(candidate.steps.begin() + static_cast<std::ptrdiff_t>(i));
      if (judge(candidate, policy).difference.empty()) {
        ++i;
      } else {
        program = std::move(candidate);
        shrank = true;
      }
    }
  }
  return program;
}

TEST_F(RandomLoopsTest, ComputeTheSameAndHoldNoMoreAfterTwiceAsManyRounds) {
  const SeedRange seeds = seeds_to_run(75);
  uint32_t compared = 0, exact = 0;
  int64_t recomputed = 0;
  int failures = 0;
  for (uint32_t i = 0; i < seeds.count && failures < kMostFailures; ++i) {
    const uint32_t seed = seeds.first + i;
    const LoopProgram program = LoopProgram::draw(seed);
    const uint32_t policy = seed / 3;
    const LoopVerdict verdict = judge(program, policy);
    compared += verdict.counts;
    exact += verdict.is_exact;
    recomputed += verdict.recomputed_ops;
    if (verdict.difference.empty()) continue;
    ++failures;
    const LoopProgram fewest = reduced(program, policy);
    ADD_FAILURE() << "loop " << seed << " under " << name_of(policy) << ":\n"
                  << judge(fewest, policy).difference << fewest.words();
  }
  std::cerr << compared << " loops compared, " << exact
            << " of them with a backward in each period that ends all graphs, " << recomputed << " ops replayed\n";
  EXPECT_GE(compared, seeds.count * 9 / 10);
  EXPECT_GE(exact, seeds.count / 3);
}

TEST_F(RandomLoopsTest, TheSameSeedIsTheSameLoop) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    EXPECT_EQ(LoopProgram::draw(seed).words(), LoopProgram::draw(seed).words());
  }
}

}  // namespace
}  // namespace ac2::test

int main(int argc, char** argv) {
  return ac2::test::run_all_tests(argc, argv);
}

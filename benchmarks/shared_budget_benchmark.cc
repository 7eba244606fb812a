// Training steps on 1, 2, 4 and 8 threads that share one memory budget, beside the same threads with a budget of their
// own, and without regions.
//
//   shared_budget_benchmark                       a table; two minutes
//   shared_budget_benchmark --threads=4 --shares=0.2 --rounds=20
//   shared_budget_benchmark --one_share --networks=chain --threads=1,2,4 --chain=2000 --rows=1 --shares=0.004
//
// Each thread trains a network of its own: residual blocks, a region each, or a chain of equal ops in one region. A
// share is the budget of one thread, in parts of what it holds for backward without a budget; what the threads share
// is as many times that as there are threads, or with --one_share that of one. The three ways take turns in each round,
// and every ratio is one of two times of the same round. Replays and evictions are those of one step of one thread, on
// average.
#include <absl/flags/flag.h>
#include <absl/flags/parse.h>
#include <absl/flags/usage.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <torch/torch.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ac2/memory_budget.h"
#include "ac2/scope.h"
#include "ac2/trace.h"
#include "examples/table.h"

ABSL_FLAG(std::vector<std::string>, threads, std::vector<std::string>({"1", "2", "4", "8"}), "how many threads");
ABSL_FLAG(std::vector<std::string>, shares, std::vector<std::string>({"0.5", "0.2"}),
          "the budget of one thread, in parts of what it would hold");
ABSL_FLAG(std::vector<std::string>, networks, std::vector<std::string>({"blocks", "chain"}), "what is trained");
ABSL_FLAG(bool, one_share, false, "all threads together share the budget of one");
ABSL_FLAG(int64_t, rounds, 7, "timed rounds of each row");
ABSL_FLAG(int64_t, chain, 200, "ops of the chain");
ABSL_FLAG(int64_t, rows, 64, "rows of what flows through the networks");
ABSL_FLAG(int64_t, steps, 4, "training steps of each thread in a round");

namespace {

constexpr int64_t kChannels = 96, kLayers = 10;

using Budgets = std::vector<std::optional<ac2::MemoryBudget>>;  // of each thread

struct Counts {
  int64_t replays = 0, evictions = 0;
};

// One thread's network, and what it opens regions with.
class Trainer {
 public:
  Trainer(bool is_chain, int64_t seed) : is_chain_(is_chain) {
    torch::manual_seed(seed);
    input_ = torch::randn({absl::GetFlag(FLAGS_rows), kChannels}, torch::requires_grad());
    for (int64_t i = 0; i < (is_chain ? 0 : kLayers); ++i) {
      weights_.push_back((torch::randn({4 * kChannels, kChannels}) * 0.05).requires_grad_());
      weights_.push_back((torch::randn({kChannels, 4 * kChannels}) * 0.05).requires_grad_());
    }
  }

  // Returns what a budget held after forward.
  int64_t step(const std::optional<ac2::MemoryBudget>& budget) {
    std::vector<at::Tensor> leaves = weights_;
    leaves.push_back(input_);
    std::vector<std::shared_ptr<const ac2::Trace>> traces;
    at::Tensor x = input_;
    const auto in_region = [&](const auto& part) {
      std::optional<ac2::PolicyScope> scope;
      if (budget) traces.push_back(scope.emplace(ac2::ScopeOptions{.memory_budget = *budget}).trace());
      part();
    };
    if (is_chain_) {
      in_region([&] {
        for (int64_t i = 0; i < absl::GetFlag(FLAGS_chain); ++i) x = x.sin();
      });
    }
    for (size_t i = 0; i < weights_.size(); i += 2) {
      in_region([&] {
        const at::Tensor h = at::gelu(at::linear(at::layer_norm(x, {kChannels}), weights_[i]));
        x = x + at::linear(h, weights_[i + 1]).tanh();
      });
    }
    const int64_t held = budget ? budget->held_bytes() : 0;
    gradients_ = torch::autograd::grad({x.sum()}, leaves);
    x.reset();
    for (const auto& trace : traces) {
      counts_.replays += trace->stats().recomputed_ops;
      counts_.evictions += trace->stats().evicted_values;
    }
    return held;
  }

  Counts take_counts() { return std::exchange(counts_, {}); }
  const std::vector<at::Tensor>& gradients() const { return gradients_; }

 private:
  bool is_chain_;
  at::Tensor input_;
  std::vector<at::Tensor> weights_, gradients_;
  Counts counts_;
};

bool same_bits(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const at::Tensor& x, const at::Tensor& y) { return at::equal(x, y); });
}

// Seconds from the moment at which all have begun.
double run(std::vector<Trainer>& trainers, const Budgets& budgets) {
  std::barrier begin(static_cast<std::ptrdiff_t>(trainers.size()) + 1);
  std::vector<std::thread> threads;
  std::vector<std::exception_ptr> errors(trainers.size());
  for (size_t i = 0; i < trainers.size(); ++i) {
    threads.emplace_back([&, i] {
      at::set_num_threads(1);
      begin.arrive_and_wait();
      try {
        for (int64_t step = 0; step < absl::GetFlag(FLAGS_steps); ++step) trainers[i].step(budgets[i]);
      } catch (...) {
        errors[i] = std::current_exception();
      }
    });
  }
  begin.arrive_and_wait();
  const auto start = std::chrono::steady_clock::now();
  for (std::thread& thread : threads) thread.join();
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
  return time.count();
}

struct Way {
  std::vector<double> times, over_plain;
  Counts counts;

  void add(double time, double plain, std::vector<Trainer>& trainers) {
    times.push_back(time);
    over_plain.push_back(time / plain);
    for (Trainer& trainer : trainers) {
      const Counts one = trainer.take_counts();
      counts.replays += one.replays;
      counts.evictions += one.evictions;
    }
  }
};

std::vector<std::vector<at::Tensor>> gradients_of(const std::vector<Trainer>& trainers) {
  std::vector<std::vector<at::Tensor>> gradients;
  for (const Trainer& trainer : trainers) gradients.push_back(trainer.gradients());
  return gradients;
}

std::vector<std::string> measure(const std::string& network, size_t threads, double share) {
  std::vector<Trainer> trainers;
  for (size_t i = 0; i < threads; ++i) trainers.emplace_back(network == "chain", static_cast<int64_t>(i));
  const int64_t all = trainers.front().step(ac2::MemoryBudget(int64_t{1} << 40));
  const auto bytes = static_cast<int64_t>(share * static_cast<double>(all));
  Way own, shared;
  bool same = true;
  for (int64_t round = 0; round < absl::GetFlag(FLAGS_rounds); ++round) {
    const double plain = run(trainers, Budgets(threads));
    const auto expected = gradients_of(trainers);
    for (Trainer& trainer : trainers) trainer.take_counts();
    const auto check = [&] {
      for (size_t i = 0; i < threads; ++i) same &= same_bits(trainers[i].gradients(), expected[i]);
    };
    Budgets owned;
    for (size_t i = 0; i < threads; ++i) owned.emplace_back(ac2::MemoryBudget(bytes));
    own.add(run(trainers, owned), plain, trainers);
    check();
    const ac2::MemoryBudget together(absl::GetFlag(FLAGS_one_share) ? bytes : bytes * static_cast<int64_t>(threads));
    shared.add(run(trainers, Budgets(threads, together)), plain, trainers);
    check();
  }
  std::vector<double> over_own;
  for (size_t i = 0; i < own.times.size(); ++i) over_own.push_back(shared.times[i] / own.times[i]);
  const double steps = static_cast<double>(threads) * static_cast<double>(own.times.size()) *
                       static_cast<double>(absl::GetFlag(FLAGS_steps));
  const auto per_step = [&](int64_t count) { return gpt::fixed(static_cast<double>(count) / steps, 1); };
  return {network,
          absl::StrCat(threads),
          gpt::fixed(share, 2),
          gpt::fixed(gpt::quantile(own.over_plain, 0.5), 2),
          gpt::fixed(gpt::quantile(shared.over_plain, 0.5), 2),
          gpt::fixed(gpt::quantile(over_own, 0.5), 2),
          gpt::fixed(gpt::quantile(over_own, 1), 2),
          per_step(own.counts.replays),
          per_step(shared.counts.replays),
          per_step(own.counts.evictions),
          per_step(shared.counts.evictions),
          same ? "yes" : "NO"};
}

template <class Number, class Parse>
std::vector<Number> numbers(const std::vector<std::string>& texts, const Parse& parse, const char* what) {
  std::vector<Number> result;
  for (const std::string& text : texts) {
    Number number = 0;
    TORCH_CHECK(parse(text, &number) && number > 0, what, ": expected positive numbers, but got \"", text, "\".");
    result.push_back(number);
  }
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("Training steps of threads that share a memory budget.");
  absl::ParseCommandLine(argc, argv);
  at::set_num_threads(1);
  std::vector<std::vector<std::string>> rows;
  try {
    const auto threads = numbers<int64_t>(
        absl::GetFlag(FLAGS_threads), [](const auto& text, int64_t* n) { return absl::SimpleAtoi(text, n); },
        "--threads");
    const auto shares = numbers<double>(
        absl::GetFlag(FLAGS_shares), [](const auto& text, double* n) { return absl::SimpleAtod(text, n); }, "--shares");
    for (const std::string& network : absl::GetFlag(FLAGS_networks)) {
      TORCH_CHECK(network == "blocks" || network == "chain", "--networks: expected blocks or chain, but got \"",
                  network, "\".");
      for (const double share : shares) {
        for (const int64_t n : threads) {
          rows.push_back(measure(network, static_cast<size_t>(n), share));
          std::cerr << absl::StrCat(network, ", ", n, " threads, ", share, ": ", rows.back()[5], "\n");
        }
      }
    }
  } catch (const c10::Error& error) {
    std::cerr << "shared_budget_benchmark: " << error.what_without_backtrace() << '\n';
    return EXIT_FAILURE;
  }
  gpt::print_table(std::cout,
                   {"network", "threads", "share", "own / plain", "shared / plain", "shared / own", "at most",
                    "replays, own", "shared", "evictions, own", "shared", "same bits"},
                   rows);
  const bool same = std::all_of(rows.begin(), rows.end(), [](const auto& row) { return row.back() == "yes"; });
  return same ? EXIT_SUCCESS : EXIT_FAILURE;
}

// Ranks that agree on what their budgets drop (ac2/rank_group.h). The ranks are threads: each has its own parameters,
// budget and length of sequence, and notes the order in which its replays gather parameters. On processes each of these
// would be a collective, for which ranks in another order wait for ever.
#include "ac2/rank_group.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ac2/memory_budget.h"
#include "ac2/scope.h"
#include "ac2/trace.h"
#include "tests/support/regions.h"
#include "tests/support/resized_parameter.h"
#include "tests/support/warnings.h"

namespace ac2::test {
namespace {

using ::testing::HasSubstr;

// Where threads meet, as often as they like.
class Meeting {
 public:
  explicit Meeting(int ranks) : ranks_(ranks) {}

  void take_largest(at::Tensor& numbers) {
    std::unique_lock lock(mutex_);
    if (lost_) {
      TORCH_CHECK(false, "a rank is lost");
    }
    most_ = arrived_ == 0 ? numbers.clone() : at::maximum(most_, numbers);
    const int64_t round = round_;
    if (++arrived_ == ranks_) {
      arrived_ = 0;
      ++round_;
      largest_ = most_;
      all_.notify_all();
    } else {
      all_.wait(lock, [&] { return round_ != round || lost_; });
      TORCH_CHECK(round_ != round, "a rank is lost");
    }
    numbers.copy_(largest_);
  }
  // A thread that comes to no further meeting.
  void lose_one() {
    const std::lock_guard lock(mutex_);
    lost_ = true;
    all_.notify_all();
  }

 private:
  const int ranks_;
  std::mutex mutex_;
  std::condition_variable all_;
  int arrived_ = 0;
  int64_t round_ = 0;
  bool lost_ = false;
  at::Tensor most_;     // of those that have arrived
  at::Tensor largest_;  // of all, in the last round: the next one ends when all have read it
};

class Ranks : public RankGroup {
 public:
  explicit Ranks(Meeting& meeting) : meeting_(meeting) {}
  void take_largest(at::Tensor& numbers) override {
    ++calls;
    meeting_.take_largest(numbers);
  }
  int calls = 0;

 private:
  Meeting& meeting_;
};

// Parameters that are gathered for replays, in an order that is noted.
class Units {
 public:
  explicit Units(int count, int64_t width) {
    for (int unit = 0; unit < count; ++unit) {
      // The same numbers on all ranks.
      units_.emplace_back(at::linspace(-1, 1, width * width).reshape({width, width}) + 0.1 * unit,
                          "weight " + std::to_string(unit));
    }
  }
  Units(const Units&) = delete;
  Units& operator=(const Units&) = delete;

  ScopeOptions options(const MemoryBudget& budget) {
    return {.memory_budget = budget, .gather_units = [this](const std::vector<at::Tensor>& missing) {
              for (size_t unit = 0; unit < units_.size(); ++unit) {
                for (const at::Tensor& parameter : missing) {
                  if (parameter.is_same(units_[unit].parameter())) {
                    units_[unit].gather();
                    gathered.push_back(static_cast<int>(unit));
                  }
                }
              }
            }};
  }
  void let_go() {
    for (ResizedParameter& unit : units_) {
      unit.let_go();
    }
  }
  void gather_all() {
    for (ResizedParameter& unit : units_) {
      unit.gather();
    }
  }
  std::vector<at::Tensor> parameters() const {
    std::vector<at::Tensor> parameters;
    for (const ResizedParameter& unit : units_) {
      parameters.push_back(unit.parameter());
    }
    return parameters;
  }
  std::vector<at::Tensor> plain() const {
    std::vector<at::Tensor> plain;
    for (const ResizedParameter& unit : units_) {
      plain.push_back(unit.plain());
    }
    return plain;
  }

  std::vector<int> gathered;

 private:
  std::vector<ResizedParameter> units_;
};

using Model = std::function<at::Tensor(const at::Tensor& x, const std::vector<at::Tensor>& weights)>;

// What the first layer has computed is read once more at the end: there a replay gathers the first parameter before the
// last one has had its backward.
at::Tensor chain(const at::Tensor& x, const std::vector<at::Tensor>& weights) {
  at::Tensor h = x, first;
  for (const at::Tensor& weight : weights) {
    h = at::gelu(at::linear(h, weight)).sin().cos() + h;
    first = first.defined() ? first : h;
  }
  return (h.sin() * first.sin().exp()).sum();
}

struct RankResult {
  std::vector<std::vector<int>> gathered;  // of each step
  int calls = 0;
  int64_t recomputed = 0;
  int64_t evicted = 0;
  std::vector<std::string> warnings;
};

constexpr int64_t kWidth = 16;

// Trains `steps` steps on a thread, and compares each with plain training.
class Rank {
 public:
  Rank(Meeting& meeting, int units) : ranks_(std::make_shared<Ranks>(meeting)), units_(units, kWidth) {}

  const std::shared_ptr<Ranks>& ranks() const { return ranks_; }
  RankResult train(const Model& model, int64_t rows, const MemoryBudget& budget, int steps) {
    RankResult result;
    const Warnings warnings;
    for (int step = 0; step < steps; ++step) {
      const at::Tensor x = at::linspace(-2, 2, rows * kWidth).reshape({rows, kWidth}).requires_grad_();
      const at::Tensor y = leaf_like(x);
      const std::vector<at::Tensor> plain = units_.plain();
      model(y, plain).backward();
      units_.gather_all();
      units_.gathered.clear();
      at::Tensor loss;
      std::shared_ptr<const Trace> trace;
      {
        const PolicyScope scope(units_.options(budget));
        trace = scope.trace();
        loss = model(x, units_.parameters());
      }
      units_.let_go();
      loss.backward();
      EXPECT_TRUE(same_bits(x.grad(), y.grad()));
      units_.gather_all();
      for (size_t i = 0; i < plain.size(); ++i) {
        EXPECT_TRUE(same_bits(units_.parameters()[i].grad(), plain[i].grad()));
        units_.parameters()[i].mutable_grad().reset();
      }
      result.gathered.push_back(units_.gathered);
      result.recomputed += trace->stats().recomputed_ops;
      result.evicted += trace->stats().evicted_values;
    }
    result.calls = ranks_->calls;
    result.warnings = warnings.messages;
    return result;
  }

 private:
  std::shared_ptr<Ranks> ranks_;
  Units units_;
};

struct RankOptions {
  int64_t rows = 32;
  int64_t bytes = int64_t{1} << 30;
  Model model = &chain;
};

// `agree`: with a group, or each for itself.
std::vector<RankResult> train(const std::vector<RankOptions>& options, int units, int steps, bool agree = true) {
  Meeting meeting(static_cast<int>(options.size()));
  std::vector<RankResult> results(options.size());
  std::vector<std::thread> threads;
  threads.reserve(options.size());
  for (size_t i = 0; i < options.size(); ++i) {
    threads.emplace_back([&, i] {
      Rank rank(meeting, units);
      const MemoryBudget budget =
          agree ? MemoryBudget::soft(options[i].bytes, rank.ranks()) : MemoryBudget::soft(options[i].bytes, true);
      try {
        results[i] = rank.train(options[i].model, options[i].rows, budget, steps);
      } catch (const std::exception& error) {
        meeting.lose_one();
        ADD_FAILURE() << "rank " << i << ": " << error.what();
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return results;
}

constexpr int64_t kSmall = 4 << 10;  // of some 2 KiB a value

class RanksTest : public CleanTest {};

// Without the group they differ, so that what the tests below compare says something.
TEST_F(RanksTest, RanksThatDoNotAgreeGatherOtherParameters) {
  const auto ranks = train({{.bytes = kSmall}, {}}, 4, 1, /*agree=*/false);
  EXPECT_FALSE(ranks[0].gathered[0].empty());
  EXPECT_NE(ranks[0].gathered, ranks[1].gathered);
  EXPECT_EQ(ranks[1].evicted, 0);
}

TEST_F(RanksTest, WhatOneRankDropsAllDropWhereAReplayGathers) {
  const auto ranks = train({{.bytes = kSmall}, {}, {}}, 4, 3);
  EXPECT_FALSE(ranks[0].gathered[0].empty());
  EXPECT_GT(ranks[1].evicted, 0);
  EXPECT_EQ(ranks[0].gathered, ranks[1].gathered);
  EXPECT_EQ(ranks[0].gathered, ranks[2].gathered);
}

TEST_F(RanksTest, ARankWithALongerSequenceGathersAsTheOthersDo) {
  const auto ranks = train({{.rows = 96, .bytes = 40 << 10}, {.rows = 8, .bytes = 40 << 10}}, 4, 3);
  EXPECT_FALSE(ranks[0].gathered[0].empty());
  EXPECT_EQ(ranks[0].gathered, ranks[1].gathered);
}

TEST_F(RanksTest, WhereAllHasRoomNothingIsReplayedAndRanksMeetOnceABackward) {
  const auto ranks = train({{}, {}}, 4, 3);
  for (const RankResult& rank : ranks) {
    EXPECT_EQ(rank.recomputed, 0);
    EXPECT_EQ(rank.calls, 3);
  }
}

TEST_F(RanksTest, RanksMeetTwiceInABackwardBeforeWhichOneHasDroppedSomething) {
  const auto ranks = train({{.bytes = kSmall}, {}}, 4, 3);
  EXPECT_EQ(ranks[0].calls, 6);
  EXPECT_EQ(ranks[1].calls, 6);
}

TEST_F(RanksTest, RanksThatHaveDroppedTheSameMeetOnceABackward) {
  const auto ranks = train({{.bytes = kSmall}, {.bytes = kSmall}}, 4, 3);
  EXPECT_GT(ranks[0].evicted, 0);
  EXPECT_EQ(ranks[0].calls, 3);
  EXPECT_EQ(ranks[0].gathered, ranks[1].gathered);
}

// As garbage collection does, which comes earlier on one rank than on another.
TEST_F(RanksTest, AGraphThatOneRankAloneStillHasChangesNothing) {
  std::vector<at::Tensor> still_there;
  const auto model_of = [](std::vector<at::Tensor>* keep) -> Model {
    return [keep](const at::Tensor& x, const std::vector<at::Tensor>& weights) {
      const at::Tensor y = at::linear(x, weights[0]);
      if (const at::Tensor wanted = y.sin(); keep != nullptr) {
        keep->push_back(wanted);  // whose graph has saved y, which no other graph wants
      }
      const at::Tensor later = at::linear(x, weights[1]).tanh();
      const at::Tensor last = (y + x).tanh();  // where y is computed again, weight 0 is gathered before weight 1
      return ((later + last) * sines(x, 8)).sum();
    };
  };
  const auto ranks = train({{.model = model_of(&still_there)}, {.bytes = 1, .model = model_of(nullptr)}}, 2, 2);
  EXPECT_EQ(ranks[1].gathered[0], (std::vector<int>{0, 1}));
  EXPECT_EQ(ranks[0].gathered, ranks[1].gathered);
}

TEST_F(RanksTest, WhatNeedsNoOtherRankStaysEachRanksChoice) {
  // No parameter is gathered for a replay of what does not depend on one.
  const Model local = [](const at::Tensor& x, const std::vector<at::Tensor>&) { return sines(x, 12).sum(); };
  const auto ranks = train({{.bytes = kSmall, .model = local}, {.model = local}}, 1, 1);
  EXPECT_GT(ranks[0].recomputed, 0);
  EXPECT_EQ(ranks[1].recomputed, 0);
  EXPECT_EQ(ranks[1].evicted, 0);
}

TEST_F(RanksTest, RanksWithOtherNumbersOfOpsDropAllWhoseReplaysGatherAndAWarningSaysSo) {
  const Model longer = [](const at::Tensor& x, const std::vector<at::Tensor>& weights) {
    return chain(sines(x, 3), weights);
  };
  const auto ranks = train({{.model = longer}, {}}, 3, 1);
  EXPECT_GT(ranks[0].evicted, 0);
  EXPECT_EQ(ranks[0].gathered, ranks[1].gathered);
  EXPECT_FALSE(ranks[0].gathered[0].empty());
  const size_t warned = ranks[0].warnings.size() + ranks[1].warnings.size();
  EXPECT_EQ(warned, 1U);  // of the process
}

TEST_F(RanksTest, ALostRankIsAnErrorOfTheBackwardThatWaitsForIt) {
  Meeting meeting(2);
  Rank rank(meeting, 2);
  const MemoryBudget budget(1 << 20, rank.ranks());
  std::thread other([&] { meeting.lose_one(); });
  expect_error([&] { rank.train(&chain, 8, budget, 1); }, {"a rank is lost"});
  other.join();
  expect_next_region_works();
}

TEST_F(RanksTest, ANullGroupIsAnError) {
  const std::shared_ptr<RankGroup> none;
  expect_error([&] { whatever_fits(none); }, {"null RankGroup"});
  expect_error([&] { MemoryBudget(64, none); }, {"null RankGroup"});
  expect_error([&] { MemoryBudget::soft(64, none); }, {"null RankGroup"});
  expect_error([&] { MemoryBudget::peak(64, none); }, {"null RankGroup"});
}

TEST_F(RanksTest, AGroupOnAnInnerScopeOfARegionWithAnotherBudgetIsAnError) {
  Meeting meeting(1);
  const MemoryBudget budget(64, std::make_shared<Ranks>(meeting));
  const PolicyScope outer({.memory_budget = int64_t{1} << 20});
  expect_error([&] { const PolicyScope inner({.memory_budget = budget}); },
               {"would have no effect", "outermost scope"});
}

TEST_F(RanksTest, WhateverFitsIsOneBudgetForEachGroup) {
  Meeting meeting(1);
  const auto one = std::make_shared<Ranks>(meeting), other = std::make_shared<Ranks>(meeting);
  const at::Tensor x = sample({64});
  const MemoryBudget budget = whatever_fits(one);
  const PolicyScope scope({.memory_budget = budget});
  const at::Tensor y = x.sin();
  EXPECT_EQ(whatever_fits(one).held_bytes(), budget.held_bytes());
  EXPECT_EQ(whatever_fits(other).held_bytes(), 0);
}

// A graph of ops, of which some take a parameter and some do not.
Model random_model(unsigned seed) {
  return [seed](const at::Tensor& x, const std::vector<at::Tensor>& weights) {
    std::mt19937 random(seed);
    const auto pick = [&](size_t count) { return std::uniform_int_distribution<size_t>(0, count - 1)(random); };
    std::vector<at::Tensor> values = {x};
    for (int op = 0; op < 24; ++op) {
      const at::Tensor& a = values[values.size() - 1 - pick(std::min<size_t>(values.size(), 4))];
      const at::Tensor& b = values[pick(values.size())];
      switch (pick(6)) {
        case 0:
          values.push_back(at::linear(a, weights[pick(weights.size())]));
          break;
        case 1:
          values.push_back(a.sigmoid());
          break;
        case 2:
          values.push_back(a * b.sigmoid());
          break;
        case 3:
          values.push_back(at::softmax(a, 1));
          break;
        case 4:
          values.push_back((a + b).tanh());
          break;
        default:
          values.push_back(at::layer_norm(a, {kWidth}));
          break;
      }
    }
    at::Tensor loss = values.back().sum();
    for (size_t i = 1; i < values.size(); i += 5) {
      loss = loss + values[i].sin().sum();
    }
    return loss;
  };
}

// How many of the models have ranks that gather in different orders; of `with_gathering` a replay gathers something.
struct Differences {
  int models = 0;
  int with_gathering = 0;
};

Differences differences_of_random_models(bool agree) {
  Differences found;
  for (unsigned seed = 1; seed <= 40; ++seed) {
    std::mt19937 random(1000 + seed);
    std::vector<RankOptions> options(3);
    for (RankOptions& one : options) {
      one.rows = std::uniform_int_distribution<int64_t>(4, 48)(random);
      one.bytes = std::uniform_int_distribution<int64_t>(1, 60)(random) << 10;
      one.model = random_model(seed);
    }
    const auto ranks = train(options, 3, 2, agree);
    found.models += ranks[0].gathered != ranks[1].gathered || ranks[0].gathered != ranks[2].gathered ? 1 : 0;
    found.with_gathering += ranks[0].gathered[0].empty() ? 0 : 1;
  }
  return found;
}

TEST_F(RanksTest, RandomModelsUnderRandomBudgetsGatherAlikeOnAllRanks) {
  const Differences agreeing = differences_of_random_models(true), alone = differences_of_random_models(false);
  EXPECT_EQ(agreeing.models, 0);
  EXPECT_GT(agreeing.with_gathering, 10);
  EXPECT_GT(alone.models, 5);
}

}  // namespace
}  // namespace ac2::test

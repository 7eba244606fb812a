// ScopeOptions::timeline, as to_chrome_trace() and to_dot() show it: what ran, for whom, who decided, and every byte.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "ac2/op_scopes.h"
#include "ac2/report.h"
#include "policies/policies.h"
#include "tests/support/regions.h"

namespace ac2::test {
namespace {

using Json = nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pair;
using ::testing::SizeIs;

constexpr int64_t kValues = 256;
constexpr int64_t kBytes = kValues * 4;

class TimelineTest : public CleanTest {
 protected:
  // Runs `fn` on a leaf in a region with a timeline.
  template <class Fn>
  at::Tensor run(Fn&& fn, Policy policy = policies::recompute_all()) {
    PolicyScope scope(std::move(policy), {.timeline = true});
    trace_ = scope.trace();
    return fn(x_);
  }

  // Events of a phase and category, in the file's order.
  std::vector<Json> events(const std::string& phase, const std::string& category = "") const {
    std::vector<Json> found;
    const Json trace = Json::parse(to_chrome_trace(*trace_));
    for (const Json& event : trace.at("traceEvents")) {
      if (event.at("ph") == phase && (category.empty() || event.value("cat", "") == category)) {
        found.push_back(event);
      }
    }
    return found;
  }

  static std::vector<std::string> names(const std::vector<Json>& events) {
    std::vector<std::string> names;
    for (const Json& event : events) {
      names.push_back(event.at("name"));
    }
    return names;
  }

  // (saved, replayed), one after each event.
  std::vector<std::pair<int64_t, int64_t>> held() const {
    std::vector<std::pair<int64_t, int64_t>> held;
    for (const Json& event : events("C")) {
      held.emplace_back(event.at("args").at("saved"), event.at("args").at("replayed"));
    }
    return held;
  }

  void expect_counters_end_at_the_stats() const {
    const TraceStats stats = trace_->stats();
    ASSERT_FALSE(held().empty());
    EXPECT_EQ(held().back(), std::pair(stats.saved_bytes, stats.recomputed_bytes));
  }

  at::Tensor x_ = sample({kValues});
  std::shared_ptr<const Trace> trace_;
};

TEST_F(TimelineTest, ShowsForwardReplaysReleasesAndBytes) {
  {
    const at::Tensor y = run([](const at::Tensor& x) { return x.sin().cos(); });
    gradient_of(y, x_);
  }
  const std::vector<Json> forward = events("X", "forward");
  ASSERT_THAT(names(forward), ElementsAre("aten::sin", "aten::cos"));
  for (int64_t i = 0; i < 2; ++i) {
    EXPECT_EQ(forward[i].at("args"), Json({{"op", i},
                                           {"decision", "PREFER_RECOMPUTE"},
                                           {"policy", "recompute_all"},
                                           {"depth", 0},
                                           {"output_bytes", kBytes}}));
  }
  const std::vector<Json> replays = events("X", "replay"), backwards = events("X", "backward");
  ASSERT_THAT(replays, SizeIs(1));
  EXPECT_EQ(replays[0].at("name"), "aten::sin");
  EXPECT_EQ(replays[0].at("args"), Json({{"op", 0}, {"for", "aten::sin (op 0)"}, {"asked by", "CosBackward0"}}));
  ASSERT_THAT(backwards, SizeIs(1));

  // x is held for the replay; sin's result comes and goes.
  EXPECT_THAT(held(), ElementsAre(Pair(kBytes, 0), Pair(kBytes, kBytes), Pair(kBytes, 0), Pair(0, 0)));
  EXPECT_THAT(names(events("i", "release")), ElementsAre("drop aten::sin (op 0)", "release from outside"));

  const auto begin = [](const Json& event) { return event.at("ts").get<double>(); };
  const auto end = [&](const Json& event) { return begin(event) + event.at("dur").get<double>(); };
  // Sums of doubles: a nanosecond is 1e-3.
  constexpr double kRounding = 1e-4;
  EXPECT_GE(begin(forward[0]), 0);
  EXPECT_LE(end(forward[0]), begin(forward[1]) + kRounding);
  EXPECT_LE(end(forward[1]), begin(backwards[0]) + kRounding);
  EXPECT_LE(begin(backwards[0]), begin(replays[0]));
  EXPECT_LE(end(replays[0]), end(backwards[0]) + kRounding);
}

TEST_F(TimelineTest, HasATrackForEachKind) {
  {
    gradient_of(run([](const at::Tensor& x) { return x.sin().cos(); }), x_);
  }
  std::vector<std::string> tracks;
  for (const Json& event : events("M")) {
    if (event.at("name") == "thread_name") {
      tracks.push_back(event.at("args").at("name"));
    }
  }
  EXPECT_THAT(tracks, ElementsAre("forward", "replays", "releases", "backward"));
}

TEST_F(TimelineTest, CountersFollowTheStatsThroughPackingCopiesAndTags) {
  const SaveWithHooks as_half{[](const at::Tensor& t) { return c10::IValue(t.to(at::kHalf)); },
                              [](const c10::IValue& packed) { return packed.toTensor().to(at::kFloat); }};
  {
    const at::Tensor y = run(
        [&](const at::Tensor& x) {
          const at::Tensor a = x.exp();  // packed
          at::Tensor b = a.cos();        // recomputed, then a tag saves it
          tag_with_policy(b, CheckpointPolicy::MUST_SAVE);
          at::Tensor c = b.sin();
          expect_counters_end_at_the_stats();
          b.mul_(2);  // sin needs what was there
          expect_counters_end_at_the_stats();
          return c * b;
        },
        [as_half](const OpContext& op) -> PolicyDecision {
          return op.is("aten::exp") ? PolicyDecision(as_half) : PolicyDecision(CheckpointPolicy::PREFER_RECOMPUTE);
        });
    EXPECT_GT(trace_->stats().saved_bytes, 0);
    expect_counters_end_at_the_stats();
    gradient_of(y, x_);
    expect_counters_end_at_the_stats();
  }
  expect_counters_end_at_the_stats();
  EXPECT_EQ(held().back(), std::pair(int64_t{0}, int64_t{0}));
  int64_t copied = 0, peak = 0;
  for (const Json& event : events("i", "release")) {
    copied +=
        event.at("name").get<std::string>().starts_with("copy ") ? event.at("args").at("bytes").get<int64_t>() : 0;
  }
  for (const auto& [saved, replayed] : held()) {
    EXPECT_GE(saved, 0);
    EXPECT_GE(replayed, 0);
    peak = std::max(peak, saved);
  }
  EXPECT_EQ(copied, trace_->stats().copied_bytes);
  EXPECT_EQ(copied, kBytes);
  EXPECT_EQ(peak % (kBytes / 2), 0);
}

TEST_F(TimelineTest, CountsEveryReplayOfARetainedGraph) {
  {
    const at::Tensor y = run([](const at::Tensor& x) { return x.sin().cos().tan().cos(); });
    gradient_of(y, x_, /*retain_graph=*/true);
    gradient_of(y, x_);
  }
  EXPECT_THAT(events("X", "backward"), SizeIs(2));
  const std::vector<Json> replays = events("X", "replay");
  EXPECT_THAT(replays, SizeIs(6));
  EXPECT_EQ(trace_->stats().recomputed_ops, 6);
  // The first consumer in backward is the last op of forward, and its input takes all of them.
  EXPECT_EQ(replays[0].at("args").at("asked by"), "CosBackward0");
  EXPECT_EQ(replays[0].at("args").at("for"), "aten::tan (op 2)");
}

TEST_F(TimelineTest, SaysWhichPolicyDecided) {
  {
    const at::Tensor y = run(
        [](const at::Tensor& x) {
          at::Tensor a = x.sin();  // nobody but the outer one
          PolicyScope inner(policies::save_ops({"aten::cos"}));
          a = a.cos().tan();
          PolicyScope innermost(Policy([](const OpContext& op) {
                                  return op.is("aten::exp") ? CheckpointPolicy::MUST_SAVE
                                                            : CheckpointPolicy::PREFER_SAVE;
                                }).named("exponents"));
          a = a.exp().sin();
          SaveScope save;
          return a.cos();
        },
        Policy::constant(CheckpointPolicy::PREFER_RECOMPUTE));
  }
  std::vector<std::string> decided;
  for (const Json& event : events("X", "forward")) {
    const Json& args = event.at("args");
    decided.push_back(args.at("decision").get<std::string>() + " by " + args.at("policy").get<std::string>() + " at " +
                      std::to_string(args.at("depth").get<int64_t>()));
  }
  EXPECT_THAT(decided, ElementsAre("PREFER_RECOMPUTE by  at 0", "MUST_SAVE by save_ops at 1",
                                   "PREFER_RECOMPUTE by save_ops at 1", "MUST_SAVE by exponents at 2",
                                   "PREFER_SAVE by exponents at 2",
                                   // The outer MUST_SAVE stands; SaveScope says the same.
                                   "MUST_SAVE by save_ops at 1"));
  EXPECT_THAT(to_dot(*trace_), HasSubstr("4: aten::sin\\nPREFER_SAVE, 1024 B\\nby exponents at depth 2"));
}

TEST_F(TimelineTest, WhatIsKeptByReferenceIsPutDownToTheOpThatWroteIt) {
  const at::Tensor bias = constant({kValues});
  {
    const at::Tensor y = run([&](const at::Tensor& x) { return x.mul(bias).add_(bias).sin(); }, "must_save_all");
    EXPECT_EQ(trace_->stats().saved_bytes, 2 * kBytes);  // bias, and what add_ left
  }
  EXPECT_THAT(names(events("i", "release")),
              ::testing::UnorderedElementsAre("release aten::add_.Tensor (op 1)", "release from outside"));
  const std::string dot = to_dot(*trace_);
  EXPECT_THAT(dot, HasSubstr("1: aten::add_.Tensor\\nkept by reference, 1024 B\", style=filled"));
  EXPECT_THAT(dot, HasSubstr("op0 -> op1;"));
  EXPECT_THAT(dot, HasSubstr("op1 -> op2;"));
}

TEST_F(TimelineTest, OutlivesTheGraphAndKeepsNoTensor) {
  c10::weak_intrusive_ptr<c10::StorageImpl> result(c10::intrusive_ptr<c10::StorageImpl>{});
  {
    const at::Tensor y = run(
        [&](const at::Tensor& x) {
          const at::Tensor a = x.mul(2).add_(1);
          result = a.storage().getWeakStorageImpl();
          return a.sin();
        },
        "must_save_all");
    EXPECT_FALSE(result.expired());
  }
  EXPECT_TRUE(result.expired());
  EXPECT_EQ(trace_->stats().live_nodes, 0);
  EXPECT_THAT(names(events("X", "forward")), ElementsAre("aten::mul.Scalar", "aten::sin"));
  EXPECT_THAT(to_dot(*trace_), HasSubstr("aten::sin"));
  EXPECT_EQ(held().back(), std::pair(int64_t{0}, int64_t{0}));
}

TEST_F(TimelineTest, BeginsWhereAnInnerScopeAsksForIt) {
  {
    at::Tensor y;
    {
      PolicyScope outer("recompute_all");
      trace_ = outer.trace();
      y = x_.sin().cos();
      PolicyScope inner("recompute_all", {.timeline = true});
      EXPECT_THAT(held(), ElementsAre(Pair(kBytes, 0)));  // x, since before
      y = y.tan().cos();
    }
    gradient_of(y, x_);
  }
  EXPECT_THAT(names(events("X", "forward")), ElementsAre("aten::tan", "aten::cos"));
  // For cos (op 3), tan is needed, and all before it.
  EXPECT_THAT(names(events("X", "replay")),
              ElementsAre("op before the timeline", "op before the timeline", "aten::tan"));
  EXPECT_EQ(trace_->stats().recomputed_ops, 3);
}

TEST_F(TimelineTest, MayBeginInsideAPolicy) {
  bool first = true;
  {
    at::Tensor y;
    {
      PolicyScope scope(Policy([&](const OpContext&) {
        if (std::exchange(first, false)) {
          PolicyScope inner("recompute_all", {.timeline = true});
        }
        return CheckpointPolicy::PREFER_RECOMPUTE;
      }));
      trace_ = scope.trace();
      y = x_.sin().cos();
    }
    expect_same_bits({gradient_of(y, x_)}, {gradient_of(x_.sin().cos(), x_)}, "gradient");
  }
  EXPECT_THAT(names(events("X", "forward")), ElementsAre("aten::cos"));
}

TEST_F(TimelineTest, HoldsOpsAndReplaysThatThrew) {
  at::Tensor matrix = sample({2, 3});
  {
    const at::Tensor y = run([&](const at::Tensor& x) {
      EXPECT_ANY_THROW(matrix.mm(matrix));
      return x.sin().cos();
    });
    gradient_of(y, x_);
  }
  EXPECT_THAT(names(events("X", "forward")), ElementsAre("aten::sin", "aten::cos"));
  EXPECT_THAT(names(events("X", "not recorded")), ElementsAre("aten::mm"));
  EXPECT_EQ(trace_->stats().recorded_ops, 3);
}

TEST_F(TimelineTest, ChangesNoBitAndNoCount) {
  const auto step = [](const at::Tensor& x, ScopeOptions options) {
    at::Tensor y;
    std::shared_ptr<const Trace> trace;
    {
      PolicyScope scope(policies::save_compute_intensive(), options);
      trace = scope.trace();
      at::Tensor m = x.view({16, 16});
      y = at::dropout(m.mm(m).relu_().sin(), 0.5, true).cos();
    }
    const int64_t saved = trace->stats().saved_bytes;
    const at::Tensor gradient = gradient_of(y, x);
    return std::tuple(gradient, saved, trace->stats().recomputed_ops);
  };
  at::manual_seed(7);
  const auto [plain, plain_saved, plain_ops] = step(x_, {});
  at::manual_seed(7);
  const auto [timed, timed_saved, timed_ops] = step(x_, {.timeline = true});
  expect_same_bits({timed}, {plain}, "gradient");
  EXPECT_EQ(timed_saved, plain_saved);
  EXPECT_EQ(timed_ops, plain_ops);
}

TEST_F(TimelineTest, ShowsWhatABudgetDroppedAsReleases) {
  constexpr int64_t kKept = 2;
  {
    at::Tensor y;
    {
      PolicyScope scope({.memory_budget = kKept * kBytes, .modelled_costs = true, .timeline = true});
      trace_ = scope.trace();
      y = x_;
      for (int i = 0; i < 20; ++i) {
        y = y.sin();
      }
    }
    EXPECT_EQ(trace_->stats().evicted_values, 19 - kKept);  // nothing needs the last
    expect_counters_end_at_the_stats();
    gradient_of(y, x_);
    expect_counters_end_at_the_stats();
  }
  std::map<std::string, int64_t> releases;
  for (const std::string& name : names(events("i", "release"))) {
    ++releases[name.substr(0, name.find(' '))];
  }
  const int64_t evicted = trace_->stats().evicted_values;
  EXPECT_EQ(releases["evict"], evicted);
  EXPECT_GE(releases["release"] + releases["drop"], evicted);
  for (const auto& [saved, replayed] : held()) {
    EXPECT_LE(saved + replayed, (kKept + 1 + 1) * kBytes);  // x, which is no result, and one before it is dropped
  }
  EXPECT_EQ(held().back(), std::pair(int64_t{0}, int64_t{0}));
  EXPECT_THAT(to_dot(*trace_), HasSubstr("by a scope without a policy at depth 0"));
}

TEST_F(TimelineTest, WithoutOneTimeIsLogicalAndOnlyWhatIsReachableIsShown) {
  {
    at::Tensor y;
    {
      PolicyScope scope(saving({"aten::sin"}));
      trace_ = scope.trace();
      y = x_.sin().cos();
    }
    const std::vector<Json> forward = events("X");
    EXPECT_THAT(names(forward), ElementsAre("aten::sin"));  // nothing needs cos's result
    EXPECT_EQ(forward[0].at("ts"), 0);
    EXPECT_EQ(forward[0].at("dur"), 1);
    EXPECT_EQ(forward[0].at("args").at("saved_bytes"), kBytes);
    EXPECT_EQ(events("C").back().at("args").at("bytes"), kBytes);
  }
  EXPECT_THAT(events("X"), IsEmpty());
  EXPECT_THAT(to_dot(*trace_), Not(HasSubstr("aten::sin")));
}

}  // namespace
}  // namespace ac2::test

// The searches of the evictor and the planner.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <vector>

#include "ac2/internal/eviction/candidate_index.h"
#include "ac2/internal/planning/min_cut.h"

namespace ac2::internal {
namespace {

// Two ways from 0 to 5, of which one narrows in the middle and the other at its end.
TEST(MinCutTest, CutsEachWayWhereItIsCheapest) {
  MinCut cut(6);
  cut.add_edge(0, 1, 5);
  cut.add_edge(1, 2, 1);
  cut.add_edge(2, 5, 5);
  cut.add_edge(0, 3, MinCut::kInfinite);
  cut.add_edge(3, 4, 4);
  cut.add_edge(4, 5, 2);
  cut.solve(0, 5);
  const std::vector<bool> expected{true, true, false, true, true, false};
  for (uint32_t node = 0; node < 6; ++node) {
    EXPECT_EQ(cut.on_source_side(node), expected[node]) << node;
  }
}

TEST(MinCutTest, OfEqualCutsTheOneNearestToTheSourceIsMeant) {
  MinCut cut(4);
  for (uint32_t node = 0; node < 3; ++node) {
    cut.add_edge(node, node + 1, 2);
  }
  cut.solve(0, 3);
  EXPECT_TRUE(cut.on_source_side(0));
  for (uint32_t node = 1; node < 4; ++node) {
    EXPECT_FALSE(cut.on_source_side(node)) << node;
  }
}

// Looks at all candidates, as the index need not.
struct Candidates {
  struct Candidate {
    bool there = false;
    double rate = 0;
    double key = 0;
  };
  std::vector<Candidate> all;

  double best_score(const std::function<double(double)>& weight) const {
    double best = INFINITY;
    for (const Candidate& candidate : all) {
      if (candidate.there) best = std::min(best, candidate.rate / weight(candidate.key));
    }
    return best;
  }
};

TEST(CandidateIndexTest, FindsTheBestUpToTheWidthOfABucketWhateverIsInsertedAndErased) {
  CandidateIndex index;
  Candidates candidates{std::vector<Candidates::Candidate>(200)};
  const auto weight = [](double key) { return 1000 - key; };
  uint32_t random = 1;
  const auto draw = [&](uint32_t below) {
    random = random * 1664525 + 1013904223;
    return (random >> 8) % below;
  };
  for (int round = 0; round < 5000; ++round) {
    const ValueId id = static_cast<ValueId>(draw(200));
    auto& candidate = candidates.all[id];
    if (draw(3) == 0) {
      index.erase(id);
      candidate.there = false;
    } else {
      candidate = {true, std::exp2(draw(1000) / 100.0), static_cast<double>(draw(900))};
      index.insert(id, candidate.rate, candidate.key);
    }
    EXPECT_EQ(index.contains(id), candidate.there);
    const ValueId best = index.best([&](ValueId value) { return candidates.all[value].key; }, weight);
    const double least = candidates.best_score(weight);
    if (std::isinf(least)) {
      EXPECT_EQ(best, kNoId);
      EXPECT_TRUE(index.empty());
    } else {
      ASSERT_NE(best, kNoId);
      const double found = candidates.all[best].rate / weight(candidates.all[best].key);
      EXPECT_LE(found, least * std::exp2(1.0 / 16) * 1.000001) << round;
      // Buckets that are passed over hold nothing better.
      EXPECT_EQ(index.best([&](ValueId value) { return candidates.all[value].key; }, weight, /*most=*/1000), best);
    }
  }
}

TEST(CandidateIndexTest, SeesThatAKeyHasRisenSinceItWasInserted) {
  CandidateIndex index;
  std::vector<double> keys{1, 2};
  index.insert(0, 1.0, keys[0]);
  index.insert(1, 1.0, keys[1]);
  const auto best = [&] {
    return index.best([&](ValueId id) { return keys[id]; }, [](double key) { return 100 - key; });
  };
  EXPECT_EQ(best(), 0U);
  keys[0] = 3;
  EXPECT_EQ(best(), 1U);
}

}  // namespace
}  // namespace ac2::internal

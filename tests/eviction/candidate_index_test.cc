// The index of the evictor's candidates, against a search that looks at all of them.
#include "ac2/internal/eviction/candidate_index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <vector>

namespace ac2::internal {
namespace {

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

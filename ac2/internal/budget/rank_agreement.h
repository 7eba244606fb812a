// What the ranks of a job say to each other before a backward, so that they drop the same (ac2/rank_group.h).
//
//   RankAgreement ranks(group);
//   const Common common = ranks.compare({.limit = limit, .calls = calls, .has_dropped = dropped});
//   if (common.has_dropped && common.has_same_calls) ranks.unite(drops);   // each byte is the largest of all ranks
//
// A call of an op has two bytes: kDropped and kAbsent. Calls are told apart by their place, because ranks that run the
// same program record the same calls in the same order.
//
// Rejected: to tell of the calls alone that communicate. A result that no collective made is computed again by one as
// soon as what it was made from is gone.
//
// Threads: compare() and unite() by one thread at a time, without any lock.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "ac2/rank_group.h"

namespace ac2::internal {

class RankAgreement {
 public:
  static constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();
  // Of each call: whether a result that hooks want is not held, and whether none of its results counts on a replay.
  static constexpr int64_t kBytesOfCall = 2;
  static constexpr int64_t kDropped = 0;
  static constexpr int64_t kAbsent = 1;
  using Drops = std::vector<uint8_t>;

  explicit RankAgreement(std::shared_ptr<RankGroup> group) : group_(std::move(group)) {}

  struct Standing {
    int64_t limit = kNoLimit;  // that the rank has learned
    int64_t calls = 0;         // of which it would tell what was dropped
    bool has_dropped = false;
  };
  struct Common {
    int64_t limit = kNoLimit;  // the smallest
    bool has_same_calls = true;
    bool has_dropped = false;  // one of the ranks
  };
  Common compare(const Standing& standing);
  void unite(Drops& drops);

  const std::shared_ptr<RankGroup>& group() const { return group_; }

 private:
  std::shared_ptr<RankGroup> group_;
};

}  // namespace ac2::internal

// RankAgreement has the ranks of a job tell each other before a backward what they have dropped (ac2/rank_group.h).
//
//   RankAgreement ranks(group);
//   const Common common = ranks.compare({.limit = limit, .drops = drops});
//   if (common.has_same_calls && !common.has_same_drops) ranks.unite(drops);   // each byte is the largest of all ranks
//
// A call of an op has four bytes. Calls are told apart by their place, because ranks that run the same program record
// the same calls in the same order. Hooks of a graph that is garbage may be there on one rank and gone on another, so
// that hooks are compared too.
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
  // Of each call.
  static constexpr int64_t kBytesOfCall = 4;
  static constexpr int64_t kDropped = 0;    // 1 if a result that hooks want is not held
  static constexpr int64_t kHooked = 1;     // how many of its results hooks want, kMostHooked at most
  static constexpr int64_t kNotHooked = 2;  // kMostHooked less that
  static constexpr int64_t kAbsent = 3;     // 1 if none of its results counts on a replay
  static constexpr uint8_t kMostHooked = 255;
  using Drops = std::vector<uint8_t>;

  explicit RankAgreement(std::shared_ptr<RankGroup> group) : group_(std::move(group)) {}

  struct Standing {
    int64_t limit = kNoLimit;  // that the rank has learned
    const Drops& drops;
  };
  struct Common {
    int64_t limit = kNoLimit;  // the smallest
    bool has_same_calls = true;
    bool has_same_drops = true;
  };
  Common compare(const Standing& standing);
  void unite(Drops& drops);

  const std::shared_ptr<RankGroup>& group() const { return group_; }

 private:
  std::shared_ptr<RankGroup> group_;
};

}  // namespace ac2::internal

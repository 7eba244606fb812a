// The values that may be evicted, arranged so that the best is found without looking at all of them.
//
//   index.insert(id, cost / bytes, last_use);
//   const ValueId best = index.best(key_now, weight);   // kNoId: the index is empty
//
// A candidate has a rate (what dropping it costs per byte) and a key for its age (the time of its last use, or minus
// that of its next). The smaller the key, the longer the value is not used. Rates are put into buckets, 16 to an octave
// (a factor of two). In a bucket the candidate with the smallest key is the best, up to the bucket's width, however
// time is weighed. So only the first candidates of the buckets are compared; a program has some dozens of buckets that
// are not empty.
//
// Of equal candidates the one with the lower rate is chosen, then the one with the smaller id. Threads: not
// thread-safe.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <vector>

#include "ac2/internal/eviction/evictor_ids.h"

namespace ac2::internal {

class CandidateIndex {
 public:
  // Takes the value out first if it is in the index.
  void insert(ValueId id, double rate, double key);
  void erase(ValueId id);
  bool contains(ValueId id) const { return id < stamps_.size() && stamps_[id].bucket != kNone; }
  bool empty() const { return size_ == 0; }
  // The number of the bucket for a rate.
  static int32_t bucket_of(double rate);
  // The number of the bucket that the value is in.
  int32_t bucket(ValueId id) const { return stamps_[id].bucket; }

  // The candidate with the least rate / weight(key), or kNoId. `weight` falls as the key rises. `key_now(id)` is the
  // value's key at this moment, which may have risen since insert(): a use does not need to be reported to the index.
  // No weight is more than `most`, so that buckets with rates too high for the best are not looked at.
  template <class KeyNow, class Weight>
  ValueId best(const KeyNow& key_now, const Weight& weight, double most = std::numeric_limits<double>::max()) {
    ValueId best = kNoId;
    double best_score = 0;
    int32_t last = std::numeric_limits<int32_t>::max();
    for (auto it = buckets_.begin(); it != buckets_.end();) {
      if (it->first > last) {
        break;
      }
      clean(it->second, it->first, key_now);
      if (it->second.entries.empty()) {
        it = buckets_.erase(it);
        continue;
      }
      const Entry& head = it->second.entries.front();
      const double score = stamps_[head.id].rate / weight(head.key);
      if (best == kNoId || score < best_score) {
        best = head.id;
        best_score = score;
        last = bucket_of(best_score * most) + 1;  // one more, for rounding
      }
      ++it;
    }
    return best;
  }

 private:
  static constexpr int32_t kNone = INT32_MIN;
  static constexpr double kBucketsPerOctave = 16;

  struct Entry {
    double key = 0;
    ValueId id = kNoId;
    uint32_t stamp = 0;
  };
  struct Bucket {
    std::vector<Entry> entries;  // a heap, the smallest key first; some are out of date
    size_t live = 0;             // entries that are up to date
  };
  // Where a value is. Its entry is the one with this stamp; entries with older stamps are out of date.
  struct Stamp {
    uint32_t stamp = 0;
    int32_t bucket = kNone;
    double rate = 0;
  };

  static bool later(const Entry& a, const Entry& b) { return a.key != b.key ? a.key > b.key : a.id > b.id; }
  bool is_current(const Entry& entry) const {
    return stamps_[entry.id].stamp == entry.stamp && stamps_[entry.id].bucket != kNone;
  }
  void push(Bucket& bucket, const Entry& entry);
  void pop(Bucket& bucket);
  void compact(Bucket& bucket);

  // Removes and moves entries until the first is up to date, its key included.
  template <class KeyNow>
  void clean(Bucket& bucket, int32_t number, const KeyNow& key_now) {
    while (!bucket.entries.empty()) {
      Entry head = bucket.entries.front();
      if (!is_current(head) || stamps_[head.id].bucket != number) {
        pop(bucket);
        continue;
      }
      const double key = key_now(head.id);
      if (key <= head.key) {
        return;
      }
      pop(bucket);
      head.key = key;
      push(bucket, head);
    }
  }

  std::map<int32_t, Bucket> buckets_;
  std::vector<Stamp> stamps_;
  size_t size_ = 0;
};

}  // namespace ac2::internal

// The values that may be dropped, arranged so that the best is found without looking at all of them.
//
// A candidate has a rate (cost of dropping it per byte) and an age key (its last use, or minus its next: the smaller,
// the further away). Rates are put into buckets, 16 to an octave; within a bucket the smallest key is the best but for
// less than the bucket's width, whatever the weight of time is, so only the heads of the buckets are compared. A
// program has some dozens of buckets that are not empty.
//
// Ties go to the lower rate, then to the smaller id. Not thread-safe.
#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <vector>

#include "ac2/internal/eviction/evictor_graph.h"

namespace ac2::internal {

class CandidateIndex {
 public:
  // In whatever place it had before, it is there no more.
  void insert(ValueId id, double rate, double key);
  void erase(ValueId id);
  bool contains(ValueId id) const { return id < stamps_.size() && stamps_[id].bucket != kNone; }
  bool empty() const { return size_ == 0; }
  // Which bucket a rate belongs to.
  static int32_t bucket_of(double rate);
  int32_t bucket(ValueId id) const { return stamps_[id].bucket; }

  // The candidate with the least rate / weight(key), or kNoId. `weight` falls as the key rises. `key_now(id)` is the
  // key as it is now: it may have risen since insert().
  template <class KeyNow, class Weight>
  ValueId best(const KeyNow& key_now, const Weight& weight) {
    ValueId best = kNoId;
    double best_score = 0;
    for (auto it = buckets_.begin(); it != buckets_.end();) {
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
    size_t live = 0;
  };
  // An entry is the value's own if it bears its last stamp.
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

  // Until the head is a candidate with the key that it has now.
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

#include "ac2/internal/eviction/candidate_index.h"

#include <algorithm>

namespace ac2::internal {

int32_t CandidateIndex::bucket_of(double rate) {
  // Costs are nanoseconds and sizes bytes, so that rates below 2^-64 need not be told apart, and none is near
  // 2^1000.
  return static_cast<int32_t>(std::floor(std::log2(std::clamp(rate, 0x1p-64, 0x1p1000)) * kBucketsPerOctave));
}

void CandidateIndex::push(Bucket& bucket, const Entry& entry) {
  bucket.entries.push_back(entry);
  std::push_heap(bucket.entries.begin(), bucket.entries.end(), later);
}

void CandidateIndex::pop(Bucket& bucket) {
  std::pop_heap(bucket.entries.begin(), bucket.entries.end(), later);
  bucket.entries.pop_back();
}

void CandidateIndex::compact(Bucket& bucket) {
  bucket.entries.erase(std::remove_if(bucket.entries.begin(), bucket.entries.end(),
                                      [this](const Entry& entry) { return !is_current(entry); }),
                       bucket.entries.end());
  std::make_heap(bucket.entries.begin(), bucket.entries.end(), later);
}

void CandidateIndex::insert(ValueId id, double rate, double key) {
  if (id >= stamps_.size()) {
    stamps_.resize(id + 1);
  }
  erase(id);
  const int32_t number = bucket_of(rate);
  Bucket& bucket = buckets_[number];
  stamps_[id].bucket = number;
  stamps_[id].rate = rate;
  ++bucket.live;
  ++size_;
  push(bucket, {key, id, stamps_[id].stamp});
}

void CandidateIndex::erase(ValueId id) {
  if (!contains(id)) {
    return;
  }
  Bucket& bucket = buckets_[stamps_[id].bucket];
  ++stamps_[id].stamp;
  stamps_[id].bucket = kNone;
  --size_;
  --bucket.live;
  if (bucket.entries.size() > 2 * bucket.live + 16) {
    compact(bucket);
  }
}

}  // namespace ac2::internal

// Values that are no longer needed although their bytes are there, the largest first. They are evicted before all
// others.
//
// An entry may be out of date: the caller that takes one checks it. Of equally large values the one with the smaller id
// comes first. Threads: not thread-safe.
#pragma once

#include <cstdint>
#include <queue>
#include <vector>

#include "ac2/internal/eviction/evictor_ids.h"

namespace ac2::internal {

class UnneededQueue {
 public:
  void push(ValueId id, int64_t bytes) { entries_.push({bytes, id}); }
  bool empty() const { return entries_.empty(); }
  ValueId top() const { return entries_.top().id; }
  void pop() { entries_.pop(); }

 private:
  struct Entry {
    int64_t bytes = 0;
    ValueId id = kNoId;
    bool operator<(const Entry& other) const { return bytes != other.bytes ? bytes < other.bytes : id > other.id; }
  };
  std::priority_queue<Entry> entries_;
};

}  // namespace ac2::internal

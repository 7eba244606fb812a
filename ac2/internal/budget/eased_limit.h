// How much replays may hold where a limit is so low that they compute the same ops over and over.
//
// A replay under a limit drops what the next one needs, which then replays it. In a recurrent network each step may
// double that: a backward would not end. So a backward that has run the ops of a tape many times on average eases the
// limit for its replays: to what is held, or by half, and again by half after a few more times. The next backward of
// such a size that begins in the same way is given sooner, and at once, what this one needed.
//
//   int64_t next = eased.backward_begins(nodes, bytes);      // bytes of all values, those that are not there too
//   if (replays >= next) next += eased.ease(limit, held);
//   … replays may hold max(limit, eased.bytes()) …
//   eased.backward_ended();
//
// Only soft limits are eased: a strict one is what the program cannot exceed.
//
// Not thread-safe: its owner has a lock.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

namespace ac2::internal {

class EasedLimit {
 public:
  // A backward begins over so many nodes, whose values have so many bytes in all. Returns how many replays it may run
  // before the limit is eased.
  int64_t backward_begins(int64_t nodes, int64_t size) {
    nodes_ = std::max(nodes, kFewNodes);
    size_ = size;
    return (is_known() ? kAgain : kManyTimes) * nodes_;
  }
  // Returns after how many more replays the limit is to be eased again.
  int64_t ease(int64_t limit, int64_t held) {
    if (bytes_ == 0 && is_known() && needed_ > limit) {
      bytes_ = needed_;
      return kManyTimes * nodes_;  // needed_ sufficed before
    }
    const int64_t now = std::max(limit, bytes_);
    // If so little is held, the limit is not the reason why the backward holds no more.
    if (held >= now / 2) {
      bytes_ = std::max(now + now / 2, held);
    }
    return kAgain * nodes_;
  }
  // Of the values of the last backward that has begun.
  int64_t size() const { return size_; }
  // 0: the limit is not eased.
  int64_t bytes() const { return bytes_; }
  void backward_ended() {
    if (bytes_ > 0) {
      needed_ = std::exchange(bytes_, 0);
      needed_for_ = size_;
    }
  }

 private:
  static constexpr int64_t kManyTimes = 8;
  static constexpr int64_t kAgain = 2;
  // A tape with fewer nodes may run as many replays as one with so many, which takes no time to speak of.
  static constexpr int64_t kFewNodes = 128;

  // Whether a backward of this size has needed more before. A smaller one may need nothing.
  bool is_known() const { return needed_ > 0 && size_ >= needed_for_ / 8 * 7; }

  int64_t nodes_ = kFewNodes;
  int64_t size_ = 0;
  int64_t bytes_ = 0;
  int64_t needed_ = 0;      // by the last backward for which the limit was eased
  int64_t needed_for_ = 0;  // the size of that
};

}  // namespace ac2::internal

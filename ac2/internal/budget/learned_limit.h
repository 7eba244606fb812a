// How many bytes regions hold at most if memory is not to run out again: what a budget without a number learns.
//
//   LearnedLimit limit;                        // none: what is held is not limited
//   limit.ran_out({.held = h, .most_held = m, .freed = f});   // f bytes of h had to go before the program could go on
//   limit.backward_ended(graph_task);
//   … limit.bytes() …
//
// Where memory ran out, h - f bytes could be held beside what else there was. That is the limit from then on, and the
// next step drops in time. Late in a backward less is held, and the gradients take what was given back: there a limit
// of h - f would make the whole step hold as little. So nothing is learned where less than 7/8 are held of the most
// that this step has held, or of the limit if that is less: a replay may hold more than the limit for a while.
//
// A limit that was learned of something that does not come back would stay for ever. So after some backwards without a
// shortage, 8 at first, it rises by an eighth, and by twice as much each time that no shortage has followed, to double.
// A shortage after an attempt shows that the attempt was too much: the next one is of an eighth again, and comes after
// twice as many backwards. A program that repeats its step has few attempts, and ever fewer.
//
// Not thread-safe: its owner has a lock.
#pragma once

#include <cstdint>
#include <limits>

namespace ac2::internal {

class LearnedLimit {
 public:
  static constexpr int64_t kNone = std::numeric_limits<int64_t>::max();

  struct Shortage {
    int64_t held = 0;       // when it came
    int64_t most_held = 0;  // in this step so far
    int64_t freed = 0;
  };

  int64_t bytes() const { return bytes_; }
  void ran_out(const Shortage& shortage);
  // Of the backward with this id, which may be told several times.
  void backward_ended(int graph_task);
  void forget() { *this = {}; }

 private:
  static constexpr int64_t kSmallestPart = 8;

  int64_t bytes_ = kNone;
  int64_t patience_ = 8;
  int64_t quiet_ = 0;             // backwards since the last shortage or attempt
  int64_t part_ = kSmallestPart;  // the next attempt adds the limit divided by this
  bool is_attempt_ = false;
  int last_backward_ = -1;
};

}  // namespace ac2::internal

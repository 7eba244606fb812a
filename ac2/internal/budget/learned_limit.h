// The most bytes that regions may hold if memory is not to run out again, which a budget without a number learns.
//
//   LearnedLimit limit;                        // none: held bytes are not limited
//   limit.ran_out({.held = h, .most_held = m, .freed = f});   // f bytes of h had to go before the program could go on
//   limit.backward_ended(graph_task, spare);
//   … limit.bytes() …
//
// Where memory ran out, h - f bytes could be held beside what else there was. That is the limit from then on, and the
// next step drops in time. Late in a backward less is held, and the gradients take what was given back: there a limit
// of h - f would make the whole step hold as little. So nothing is learned where less than 7/8 are held of the most
// that this step has held, or of the limit if that is less: a replay may hold more than the limit for a while.
//
// A limit that was learned of something that does not come back would stay for ever. So after some backwards without a
// shortage, 8 at first, the limit rises by an eighth, and by twice as much each time that no shortage has followed, to
// double. A shortage after an attempt shows that the attempt was too much: the limit is what it was before, and the
// next attempt is of an eighth again, and comes after twice as many backwards. A program that repeats its step has few
// attempts, and ever fewer.
//
// A lower limit makes replays drop what the next replay needs: near the least with which a step runs, each eighth less
// may double its replays, and to drop values where memory runs out costs less. So steps are compared. One that has
// replayed more by a quarter than the best step of its size gives the next ones, 8 of them at first, the limit with
// which that step had begun, and these learn nothing: what is dropped where memory runs out follows what a step takes
// from moment to moment. Then the limit may sink again, and if that was too much once more, twice as many steps have
// the other.
//
// An accelerator tells what a step has left of its memory. There the limit rises by half of that and by nothing else,
// after a quarter as many backwards: where memory is cut into pieces, an attempt that was too much may be an error. For
// the same reason its steps are not compared: where its memory runs out, that costs more than replays.
//
// Not thread-safe: its owner has a lock.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>

namespace ac2::internal {

class LearnedLimit {
 public:
  static constexpr int64_t kNone = std::numeric_limits<int64_t>::max();

  struct Shortage {
    int64_t held = 0;       // when it came
    int64_t most_held = 0;  // in this step so far
    int64_t freed = 0;
    int64_t least = 1;  // the limit is not less after it
  };

  int64_t bytes() const { return bytes_; }
  void ran_out(const Shortage& shortage);
  // The ops that ran between two backwards' ends, with the replays of the second one.
  struct Step {
    int64_t replays = 0;
    int64_t bytes = 0;  // of all values that its backward could need
  };
  // Of the backward with this id, which may be told several times. An accelerator had `spare` bytes left that this
  // limit kept the step from taking; none if it does not say, or if none was short.
  void backward_ended(int graph_task, std::optional<int64_t> spare, const Step& step);
  void backward_ended(int graph_task, std::optional<int64_t> spare = std::nullopt) {
    backward_ended(graph_task, spare, {});
  }
  // With less than `bytes` a backward has computed the same ops over and over.
  void rise_to(int64_t bytes) { bytes_ = std::max(bytes_, bytes); }
  // Another rank of a job has no room for more.
  void sink_to(int64_t bytes) { bytes_ = std::min(bytes_, bytes); }
  int64_t backwards() const { return backwards_; }
  int last_backward() const { return last_backward_; }
  void start_anew() { *this = {}; }

 private:
  static constexpr int64_t kSmallestPart = 8;
  static constexpr int64_t kSmallestRise = 64;  // a part of the most that was held in a shortage

  void rise(std::optional<int64_t> spare);
  void attempt(int64_t more);
  void compare(const Step& step);
  bool is_like_best(const Step& step) const;

  int64_t bytes_ = kNone;
  int64_t patience_ = 8;
  int64_t quiet_ = 0;             // backwards since the last shortage or attempt
  int64_t part_ = kSmallestPart;  // the next attempt adds the limit divided by this
  bool is_attempt_ = false;
  int64_t most_held_ = 0;
  int64_t before_attempt_ = 1;
  int64_t begun_with_ = kNone;  // the limit at the end of the last backward
  std::optional<Step> best_;    // of those since the last one of another size
  int64_t best_begun_with_ = kNone;
  int64_t repeats_ = 0;  // so many steps begin as the best one did
  int64_t most_repeats_ = 8;
  int last_backward_ = -1;
  int64_t backwards_ = 0;
};

}  // namespace ac2::internal

// The limits of a memory budget: which of them rules, what it becomes, and how often it was exceeded.
//
//   BudgetLimits limits({.bytes = 1 << 30});
//   limits.add({.bytes = 1 << 20, .soft = true});   // a further scope: the smaller one rules
//   limits.ruling()                                 // {1 << 20, soft}
//   const Exceeded exceeded = limits.exceed(held);  // nothing more can be dropped, and so many bytes must be held
//   if (exceeded.strict) … an error …
//
// These are numbers alone: no tape and no evictor. The limits of a budget without a number begin with none and learn
// one (LearnedLimit). A limit that is soft is eased for replays that would never end (EasedLimit).
//
// Not thread-safe: the budget that owns them has a lock.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/container/btree_set.h"
#include "ac2/internal/budget/eased_limit.h"
#include "ac2/internal/budget/learned_limit.h"

namespace ac2::internal {

struct BudgetLimit {
  int64_t bytes;
  bool soft = false;
  auto operator<=>(const BudgetLimit&) const = default;  // of two with the same bytes the strict one is the smaller
};

class BudgetLimits {
 public:
  explicit BudgetLimits(BudgetLimit first) : limits_{first} {}
  // Of a budget without a number, which may be for a peak: its limit is a guess.
  enum class Bound : uint8_t { kMemory, kPeak };
  static BudgetLimits without_number(Bound bound);

  const BudgetLimit& ruling() const { return *limits_.begin(); }
  bool has_no_number() const { return learned_.has_value(); }

  // --- given ones ---

  void add(BudgetLimit limit) { limits_.insert(limit); }
  // One that was added.
  void remove(BudgetLimit limit) { limits_.erase(limits_.find(limit)); }
  // Memory has run out while so many bytes are held, of `most` lately. The limit is three quarters of them from then
  // on, unless far less is held than before: then somebody else has the memory, and may give it back. The limit does
  // not rise again, because an attempt that was too much could be an error. Whether it has changed.
  bool lower(int64_t held, int64_t most);

  // --- what shortages have taught ---

  // The limit of a budget without a number, or the least to which shortages have lowered one with a number;
  // LearnedLimit::kNone while there was none.
  int64_t taught() const { return learned_ ? learned_->bytes() : lowered_; }
  // The least that shortages have taught the ranks of a job. Whether that changes the limit that rules.
  bool agree_on(int64_t taught);

  // --- where a limit is exceeded ---

  struct Exceeded {
    std::optional<int64_t> strict = {};  // the strict limit, if that is what forbids it; then nothing is counted
    bool is_first = false;               // the first time that a soft limit with a number is exceeded
  };
  // So many bytes must be held, although the limit is lower.
  Exceeded exceed(int64_t held);
  // More is allocated than the peak, by so many bytes. Returns whether that is the first time.
  bool exceed_peak(int64_t bytes);
  int64_t times_over() const { return times_over_; }
  int64_t most_bytes_over() const { return most_bytes_over_; }
  // Whether it is time to ask all tapes for bytes that they could let go of. A program that exceeds a soft limit all
  // the time asks them only now and then.
  bool is_time_to_anchor() const { return (times_short_ & (times_short_ - 1)) == 0; }

  // --- while a backward replays ---

  // The bytes that replays may hold where `enough` would do.
  int64_t for_replay(int64_t enough) const;
  // How many replays a backward may run before ease() is called; see EasedLimit::backward_begins().
  int64_t backward_begins(int64_t nodes, int64_t size) { return eased_.backward_begins(nodes, size); }
  struct Eased {
    int64_t next = 0;               // after how many more replays this is to be called again
    bool has_many_replays = false;  // under a strict limit, and said for the first time
  };
  // A backward has run that many replays while `held` bytes are held. The accelerator's memory has run out before if
  // `is_cut`, and may be in pieces: then more than was learned may be an error.
  Eased ease(int64_t held, bool is_cut);
  int64_t eased() const { return eased_.bytes(); }
  void replayed() { ++replays_of_step_; }

  // --- of a budget without a number ---

  // Memory ran out. `held` and so on are LearnedLimit's; its `least` is found here.
  struct Shortage {
    int64_t held = 0;
    int64_t most_held = 0;
    int64_t freed = 0;
    bool frees_accelerator = false;
    bool is_guess = false;  // more may have been freed than was missing, so that nothing is learned
  };
  // Whether that is the first limit that was learned.
  bool ran_out(const Shortage& shortage);
  // The shortage of a single device says nothing of the bytes that all devices hold together.
  void note_several_devices() { has_several_devices_ = true; }
  int64_t backwards() const { return learned_->backwards(); }
  // Of any budget.
  void step_ended() { eased_.backward_ended(); }
  bool is_last_backward(int graph_task) const { return learned_->last_backward() == graph_task; }
  // An accelerator had `spare` bytes left; see LearnedLimit::backward_ended().
  void backward_ended(int graph_task, std::optional<int64_t> spare, int64_t most_held);
  void start_anew();

 private:
  int64_t least_strict() const;
  void lower_to(int64_t bytes);
  void apply_learned();

  absl::btree_multiset<BudgetLimit> limits_;  // the first one rules
  EasedLimit eased_;
  std::optional<LearnedLimit> learned_;
  BudgetLimit learned_limit_ = {LearnedLimit::kNone, /*soft=*/true};  // as it stands in limits_
  int64_t lowered_ = LearnedLimit::kNone;
  Bound bound_ = Bound::kMemory;
  bool has_several_devices_ = false;
  bool has_many_replays_ = false;  // a backward has run very many under a strict limit
  bool was_short_ = false;         // since the last backward ended
  // A step lowers the limit at most to three quarters of what was held in its first shortage: late in a backward there
  // is a shortage where little is held, and the next step has all of that memory. And to half on an accelerator, where
  // far more has to go than is missing once its allocator has cut segments into pieces.
  int64_t least_of_step_ = 1;
  int64_t replays_of_step_ = 0;  // since the last backward ended
  int64_t times_short_ = 0;      // of room, with nothing to drop, under soft limits
  int64_t times_over_ = 0;
  int64_t most_bytes_over_ = 0;
};

}  // namespace ac2::internal

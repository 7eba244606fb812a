// A number of bytes that the regions which share it may hold for backward, and what is dropped to stay within it.
//
//   auto budget = std::make_shared<Budget>(bytes, CostSource::kMeasured);
//   tape->set_budget(budget);
//   budget->held()->add_call(tape, node);                         // with the tape's lock held
//   budget->make_room(result_bytes, [] { return "aten::mm"; });   // no lock held: drops values, of whatever tape
//
// A budget stands between tapes, which know tensors, and the evictor, which knows sizes and costs. These count: bytes
// that a tape holds of results of its ops (each storage once), copies, what SaveWithHooks packed, replayed results, and
// tensors from outside the region that only tapes keep alive. Tensors from outside that the program holds too do not
// count, because nothing could drop them.
//
// While everything fits there is nothing to decide: the bytes are added up, and the evictor is told nothing. The first
// time that they do not fit, tracking starts: the tapes tell the evictor all that they know, and from then on every
// change.
//
// A budget may be soft: then more is held where there is no other way, which is counted, and warned of once.
//
// A budget may have no number: then nothing is dropped until memory runs out. relieve() drops what has to go, and what
// it had to drop becomes the number (LearnedLimit). Such a budget is soft, and is exceeded without a warning.
//
// A budget has three parts, which know nothing of each other: who holds what (HeldRegister), the limits (BudgetLimits),
// and the tapes that share it (SharingTapes). What stands here makes room: it asks the register for a victim, the tape
// of the victim to free it, and the limits what is to be done where there is no victim.
//
// Threads: all functions may be called from any thread. Those that take values or nodes need the lock of their tape;
// those that make room must be called without any lock. A tape's lock is never taken while the budget's own is held.
#pragma once

#include <c10/core/Device.h>
#include <c10/util/FunctionRef.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "ac2/internal/allocator/shortage.h"
#include "ac2/internal/budget/backward_turn.h"
#include "ac2/internal/budget/budget_limits.h"
#include "ac2/internal/budget/budgeted_tape.h"
#include "ac2/internal/budget/budgets_at_fork.h"
#include "ac2/internal/budget/held_register.h"
#include "ac2/internal/budget/locked_register.h"
#include "ac2/internal/budget/peak_bound.h"
#include "ac2/internal/budget/rank_agreement.h"
#include "ac2/internal/budget/sharing_tapes.h"
#include "ac2/internal/budget/spent_time.h"
#include "ac2/internal/locks/condition.h"
#include "ac2/internal/locks/mutex.h"
#include "ac2/internal/operators/cost_source.h"

namespace ac2::internal {

class Budget : public std::enable_shared_from_this<Budget> {
 public:
  Budget(BudgetLimit limit, CostSource costs) : Budget(BudgetLimits(limit), costs, nullptr) {}
  Budget(int64_t bytes, CostSource costs) : Budget(BudgetLimit{bytes}, costs) {}
  Budget(BudgetLimits limits, CostSource costs, std::unique_ptr<PeakBound> peak,
         std::shared_ptr<RankGroup> ranks = nullptr);
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;

  static std::shared_ptr<Budget> without_number(CostSource costs, std::shared_ptr<RankGroup> ranks = nullptr);
  // Without a number of its own, for all that is allocated is to stay within `peak` bytes, and not what is held alone.
  static std::shared_ptr<Budget> for_peak(int64_t peak, CostSource costs, std::shared_ptr<RankGroup> ranks = nullptr);

  // LearnedLimit::kNone of a budget without a number, while it has learned none; the peak of one for that.
  int64_t bytes() const { return peak_ ? peak_->bytes() : limit().bytes; }
  // The limit that rules now.
  BudgetLimit limit() const;
  // Its bytes, without the lock.
  int64_t limit_now() const { return limit_.load(std::memory_order_relaxed); }
  // The counted bytes that are held now.
  int64_t held_bytes() ABSL_LOCKS_EXCLUDED(start_mutex_, mutex_);
  // For how many ops and saved tensors a soft budget had no room, and by how many bytes it was exceeded at most.
  int64_t times_over() const;
  int64_t most_bytes_over() const;
  // A further scope has a budget of its own. The smallest of all budgets rules; this one counts until the returned
  // object is destroyed.
  std::shared_ptr<void> limit_to(BudgetLimit limit);
  CostSource costs() const { return costs_; }
  // The turns of the backwards that replay under this budget.
  BackwardTurn& backward_turn() { return backward_turn_; }

  // --- what tapes tell ---

  // Returns whether the tape is to be tracked from the start.
  bool add_tape(std::weak_ptr<BudgetedTape> tape);
  // Bytes held by tapes that are not tracked, of all kinds together. Tensors from outside count here even if the
  // program keeps them alive.
  void add_untracked(int64_t bytes) { untracked_bytes_.fetch_add(bytes, std::memory_order_relaxed); }
  // No lock may be held.
  void start_tracking() ABSL_LOCKS_EXCLUDED(start_mutex_, mutex_);
  LockedRegister held() ABSL_LOCKS_EXCLUDED(mutex_) ABSL_NO_THREAD_SAFETY_ANALYSIS { return {mutex_, register_}; }
  // An op of a tape's was replayed.
  void replayed(const Node& node);
  // The number by which the budget knows a form that tapes offer for values. No lock may be held. Throws c10::Error if
  // too many are in use at once.
  uint8_t number_of(const FormPtr& form) ABSL_LOCKS_EXCLUDED(mutex_);
  // Of any budget. The ops that ran since the last backward ended were a step.
  void backward_ended(int graph_task) ABSL_LOCKS_EXCLUDED(mutex_);

  // Values may be copied to the host instead of dropped: copies begin before there is no room.
  void expect_copies() { expects_copies_.store(true, std::memory_order_relaxed); }
  // The share of the budget that values may take which are copied back ahead of their use.
  int64_t bytes_ahead() const { return HostCopies::most_ahead(limit_now()); }

  // --- room ---

  // Drops values until `bytes` more may be held. If that cannot be, throws c10::Error with what `at` says in it, or
  // goes over a soft budget.
  void make_room(int64_t bytes, c10::function_ref<std::string()> at) ABSL_LOCKS_EXCLUDED(mutex_) {
    if (C10_UNLIKELY(!has_room_untracked(bytes))) {
      make_room(bytes, at, /*enough=*/0, RaisedLimit());
    }
  }
  // The same for a replay, which may hold more than a soft budget where it would otherwise be one of very many.
  // `enough` is a budget that would have done, if it is more than what must be held at once now.
  void make_room_to_replay(int64_t bytes, c10::function_ref<std::string()> at, int64_t enough)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // The same for a replay that may be done in another way, which takes fewer bytes. False if there is no room unless
  // values that are kept to the last are dropped.
  bool find_room_to_replay(int64_t bytes, c10::function_ref<std::string()> at) ABSL_LOCKS_EXCLUDED(mutex_);
  // A backward begins on a tape of so many nodes. Returns how many replays it may run before ease() is called.
  int64_t replays_before_easing(int64_t nodes);
  // The backward has run so many replays: further ones may hold more than a soft limit. Returns after how many more
  // it is to be called again.
  int64_t ease();
  // Drops what is no longer needed by anything.
  void drop_unneeded() ABSL_LOCKS_EXCLUDED(mutex_);
  // An op has failed because memory ran out. Drops something, so that it can be tried again: all that can be dropped,
  // and lowers the budget (BudgetLimits::lower); or an eighth of it, if the budget has no number. False if nothing
  // could be dropped.
  bool drop_for_another_try() ABSL_LOCKS_EXCLUDED(mutex_);
  // The time that went into making room: what is dropped is freed then too.
  const SpentTime& dropping_time() const { return dropping_time_; }

  // --- ranks that agree, in budget_ranks.cc ---

  bool has_ranks() const { return ranks_ != nullptr; }
  // Null if there are none.
  RankGroup* ranks() const { return ranks_ ? ranks_->group().get() : nullptr; }
  // There are ranks, and a backward is about to begin on a tape, with nothing pinned for it yet. The first call waits
  // for the other ranks, and the next ones for the first. No lock may be held but a turn to replay. Throws what the
  // group throws.
  void agree(int graph_task) ABSL_LOCKS_EXCLUDED(start_mutex_, mutex_);

  // --- a budget without a number ---

  bool has_no_number() const { return has_no_number_; }
  // The caller of relieve() must have the bytes, or may allocate more than a peak instead.
  enum class Need : uint8_t { kMust, kMayExceed };
  // In the middle of an allocation, with whatever locks but a tape's or the budget's own: drops values on `device`, or
  // on any, until `bytes` are free that were not before, or there is nothing more to drop. Returns how many are free
  // now.
  int64_t relieve(std::optional<c10::Device> device, int64_t bytes, Need need = Need::kMust)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Of a budget without a number. Nothing if another thread has the lock for too long.
  HeldValues values_in_time();
  // How often relieve() has freed something.
  int64_t hurried_drops() const { return hurried_drops_.load(std::memory_order_relaxed); }
  // As held_bytes(), but of what is not tracked all counts that tapes took from outside.
  int64_t most_held_bytes() const;
  // Of the process's past.
  void start_limit_anew();
  // Null unless the budget is for a peak.
  PeakBound* peak() const { return peak_.get(); }
  // More is allocated on the device than the peak, by so many bytes, and nothing could be dropped.
  void exceeded(c10::Device device, int64_t bytes);

 private:
  using Entry = HeldRegister::Entry;
  using Victim = HeldRegister::Victim;
  using Excess = HeldRegister::Excess;

  // While it lives, more may be held than the limit. Without a budget it does nothing.
  class RaisedLimit {
   public:
    RaisedLimit() = default;
    RaisedLimit(Budget& budget, int64_t enough);
    ~RaisedLimit();
    RaisedLimit(const RaisedLimit&) = delete;
    RaisedLimit& operator=(const RaisedLimit&) = delete;

    bool is_raised() const { return budget_ != nullptr; }

   private:
    Budget* budget_ = nullptr;
  };

  struct Relief;

  // --- room, in budget_room.cc ---

  void make_room(int64_t bytes, c10::function_ref<std::string()> at, int64_t enough, const RaisedLimit& raised)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Whether `bytes` more fit and the budget does not track yet. Relaxed: threads that look at once may each find the
  // same room. The next look of one of them counts what all of them hold, and starts to track.
  bool has_room_untracked(int64_t bytes) {
    if (tracking_.load(std::memory_order_acquire)) {
      return false;
    }
    const int64_t held = untracked_bytes_.load(std::memory_order_relaxed) + bytes;
    const int64_t limit = limit_.load(std::memory_order_relaxed);
    const bool copies = expects_copies_.load(std::memory_order_relaxed);
    if (C10_UNLIKELY(held > (copies ? HostCopies::most_without(limit) : limit))) {
      return false;
    }
    if (has_no_number()) {
      note_held(held);
    }
    return true;
  }
  // False if there is room for `bytes` already; else the budget tracks from now on.
  bool is_short_of(int64_t bytes) ABSL_LOCKS_EXCLUDED(mutex_);
  // Drops or packs values until `bytes` more may be held.
  std::optional<Excess> drop_until_room(int64_t bytes, bool spare_last) ABSL_LOCKS_EXCLUDED(mutex_);
  // By how much what is held, with `bytes` more, exceeds the limit.
  std::optional<Excess> excess(int64_t bytes) ABSL_LOCKS_EXCLUDED(mutex_);
  // Counts that more is held than soft limits say, and warns once; an error under a strict limit.
  void exceed(const Excess& excess, c10::function_ref<std::string()> at, int64_t enough) ABSL_LOCKS_EXCLUDED(mutex_);
  void warn_of_many_replays();
  bool is_time_to_anchor() const ABSL_LOCKS_EXCLUDED(mutex_);
  bool drop_all_and_lower() ABSL_LOCKS_EXCLUDED(mutex_);
  void drop(const Entry& entry) ABSL_LOCKS_EXCLUDED(mutex_);
  // Asked by a tape with its lock held: another thread may have dropped, pinned or saved the value since it was chosen.
  bool may_still_drop(const Entry& entry) const ABSL_LOCKS_EXCLUDED(mutex_);

  // --- forms and copies, in budget_packing.cc and budget_copies.cc ---

  // Drops the value if no form takes it for which that pays.
  void pack(const Entry& entry, uint8_t form) ABSL_LOCKS_EXCLUDED(mutex_);
  // Drops what values were packed into whose bytes are there beside it. False if there is none.
  bool drop_packed() ABSL_LOCKS_EXCLUDED(mutex_);
  // Begins copies if `bytes` more would take most of the room.
  void copy_ahead(int64_t bytes) ABSL_LOCKS_EXCLUDED(mutex_);
  // False if there is none to begin.
  bool begin_copy(int64_t bytes) ABSL_LOCKS_EXCLUDED(mutex_);
  void settle_copies() ABSL_LOCKS_EXCLUDED(mutex_);
  ProgramClock clock() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // --- where memory has run out, in budget_relief.cc ---

  bool start_tracking_in_time() ABSL_LOCKS_EXCLUDED(start_mutex_, mutex_);
  // False if there is nothing more to drop.
  bool relieve_once(std::optional<c10::Device> device, Relief& relief) ABSL_LOCKS_EXCLUDED(mutex_);
  // After a backward, for the memory of the accelerator that has run out, if one has: makes an end of what a shortage
  // of this step has left, and says how much was left of it, if that is known. An allocator that asks for values has a
  // lock of its own.
  std::optional<int64_t> settle_accelerator() ABSL_LOCKS_EXCLUDED(mutex_);

  // --- ranks, in budget_ranks.cc ---

  // False if the backward has agreed already, perhaps on another thread that this one has waited for.
  bool begin_agreement(int graph_task) ABSL_LOCKS_EXCLUDED(mutex_);
  void end_agreement() ABSL_LOCKS_EXCLUDED(mutex_);
  void agree_on_limit(int64_t taught) ABSL_LOCKS_EXCLUDED(mutex_);
  void settle_drops() ABSL_LOCKS_EXCLUDED(mutex_);

  // --- tracking and sums, in budget.cc ---

  // False if `tell` has returned that for a tape; those that it has told need not be told again.
  bool track(c10::function_ref<bool(BudgetedTape&)> tell) ABSL_EXCLUSIVE_LOCKS_REQUIRED(start_mutex_)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // `call` takes the locks of tapes, and may come back here.
  void for_each_tape(c10::function_ref<void(BudgetedTape&)> call) ABSL_LOCKS_EXCLUDED(mutex_);
  // The limits have changed: values are chosen under the one that rules now.
  void apply_limits() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The bytes that all tapes hold, those too that are not tracked.
  int64_t held_by_all_tapes() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return untracked_bytes_.load(std::memory_order_relaxed) + register_.bytes();
  }
  // Threads note without the lock what they hold; of several at once the most remains.
  void note_held(int64_t bytes) {
    int64_t most = most_held_.load(std::memory_order_relaxed);
    while (most < bytes && !most_held_.compare_exchange_weak(most, bytes, std::memory_order_relaxed)) {
    }
  }

  std::atomic<int64_t> untracked_bytes_{0};
  std::atomic<int64_t> limit_;  // that rules
  std::atomic<bool> tracking_{false};
  std::atomic<bool> expects_copies_{false};

  // The thread that starts tracking takes it before any tape's lock, so that others wait until tracking has started.
  Mutex start_mutex_ ABSL_ACQUIRED_BEFORE(mutex_);
  mutable Mutex mutex_;
  BudgetLimits limits_ ABSL_GUARDED_BY(mutex_);
  HeldRegister register_ ABSL_GUARDED_BY(mutex_);
  SharingTapes tapes_ ABSL_GUARDED_BY(mutex_);
  bool tracks_new_tapes_ ABSL_GUARDED_BY(mutex_) = false;
  // Of which relieve() had the last reference.
  std::vector<std::shared_ptr<BudgetedTape>> left_over_ ABSL_GUARDED_BY(mutex_);

  std::atomic<bool> is_to_tell_of_many_replays_{false};  // relaxed: of several threads one sees true
  BackwardTurn backward_turn_;
  const CostSource costs_;
  const bool has_no_number_;
  const uint64_t number_;  // of all budgets of the process
  const std::unique_ptr<PeakBound> peak_;
  const std::unique_ptr<RankAgreement> ranks_;
  bool is_agreeing_ ABSL_GUARDED_BY(mutex_) = false;
  Condition has_agreed_;                                     // is_agreeing_ is false again
  absl::flat_hash_set<int> agreed_ ABSL_GUARDED_BY(mutex_);  // graph tasks of backwards under way
  std::atomic<int64_t> most_held_{0};  // since the last backward ended, of a budget without a number
  std::atomic<int64_t> hurried_drops_{0};
  SpentTime dropping_time_;
  std::atomic<c10::DeviceIndex> short_accelerator_{-1};  // whose memory has run out last, if that of one has
  std::atomic<bool> accelerator_was_short_{false};       // since the last backward ended
  const BudgetAtFork at_fork_{start_mutex_, mutex_, backward_turn_.mutex()};
};

}  // namespace ac2::internal

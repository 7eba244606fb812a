// A number of bytes that the regions which share it may hold for backward, and what is dropped to stay within it.
//
//   auto budget = std::make_shared<Budget>(bytes, CostSource::kMeasured);
//   tape->set_budget(budget);
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
// Threads: all functions may be called from any thread. Those that take values or nodes need the lock of their tape;
// those that make room must be called without any lock. A tape's lock is never taken while the budget's own is held.
#pragma once

#include <c10/core/Device.h>
#include <c10/util/FunctionRef.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/btree_set.h"
#include "ac2/internal/allocator/shortage.h"
#include "ac2/internal/budget/backward_turn.h"
#include "ac2/internal/budget/budgeted_tape.h"
#include "ac2/internal/budget/budgets_at_fork.h"
#include "ac2/internal/budget/eased_limit.h"
#include "ac2/internal/budget/learned_limit.h"
#include "ac2/internal/budget/outside_bytes.h"
#include "ac2/internal/budget/peak_bound.h"
#include "ac2/internal/budget/spent_time.h"
#include "ac2/internal/eviction/evictor.h"
#include "ac2/internal/eviction/host_copies.h"
#include "ac2/internal/eviction/packing_forms.h"
#include "ac2/internal/eviction/step_memory.h"
#include "ac2/internal/graph/node.h"
#include "ac2/internal/locks/mutex.h"
#include "ac2/internal/operators/cost_source.h"

namespace ac2::internal {

class Budget : public std::enable_shared_from_this<Budget> {
 public:
  struct Limit {
    int64_t bytes;
    bool soft = false;
    auto operator<=>(const Limit&) const = default;  // of two with the same bytes the strict one is the smaller
  };

  Budget(Limit limit, CostSource costs);
  Budget(int64_t bytes, CostSource costs) : Budget(Limit{bytes}, costs) {}
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;

  static std::shared_ptr<Budget> without_number(CostSource costs);
  // Without a number of its own, for all that is allocated is to stay within `peak` bytes, and not what is held alone.
  static std::shared_ptr<Budget> for_peak(int64_t peak, CostSource costs);

  // LearnedLimit::kNone of a budget without a number, while it has learned none; the peak of one for that.
  int64_t bytes() const { return peak_ ? peak_->bytes() : limit().bytes; }
  // The limit that rules now.
  Limit limit() const;
  // Its bytes, without the lock.
  int64_t limit_now() const { return limit_.load(std::memory_order_relaxed); }
  // The counted bytes that are held now.
  int64_t held_bytes() ABSL_LOCKS_EXCLUDED(start_mutex_, mutex_);
  // For how many ops and saved tensors a soft budget had no room, and by how many bytes it was exceeded at most.
  int64_t times_over() const;
  int64_t most_bytes_over() const;
  // A further scope has a budget of its own. The smallest of all budgets rules; this one counts until the returned
  // object is destroyed.
  std::shared_ptr<void> limit_to(Limit limit);
  CostSource costs() const { return costs_; }
  // The turns of the backwards that replay under this budget.
  BackwardTurn& backward_turn() { return backward_turn_; }

  // Returns whether the tape is to be tracked from the start.
  bool add_tape(std::weak_ptr<BudgetedTape> tape);
  // Bytes held by tapes that are not tracked, of all kinds together. Tensors from outside count here even if the
  // program keeps them alive.
  void add_untracked(int64_t bytes) { untracked_bytes_.fetch_add(bytes, std::memory_order_relaxed); }
  // No lock may be held.
  void start_tracking() ABSL_LOCKS_EXCLUDED(start_mutex_, mutex_);

  // A finished node whose budgeted results can be computed again.
  void add_call(const std::weak_ptr<BudgetedTape>& tape, Node& node);
  // The value must be known to the budget.
  void forget(Value& value);
  // `value` cannot be computed again from now on, and counts as a value from outside. The program must have its bytes.
  void make_outside(Value& value);
  // `packed_bytes` as Evictor::set_place().
  void set_place(const Value& value, Place place, int64_t packed_bytes = Evictor::kNotPacked);
  void set_retention(const Value& value, Retention retention);
  void add_hook(const Value& value);
  void remove_hook(const Value& value);
  void used(const Value& value);
  // Backward has unpacked it.
  void took(const Value& value);
  // The bytes must stay while an op runs, or while its inputs are gathered.
  void pin(const Value& value);
  void unpin(const Value& value);
  void replayed(const Node& node);
  // Bytes that count and that cannot be dropped.
  void add_fixed(int64_t bytes);
  // A tensor from outside that a tape holds. The tensor counts once nobody else holds it.
  void add_outside(const c10::Storage& storage);
  void remove_outside(const c10::Storage& storage);

  // The number by which the budget knows a form that tapes offer for values. No lock may be held. Throws c10::Error if
  // too many are in use at once.
  uint8_t number_of(const FormPtr& form) ABSL_LOCKS_EXCLUDED(mutex_);

  // Values may be copied to the host instead of dropped: copies begin before there is no room.
  void expect_copies() { expects_copies_.store(true, std::memory_order_relaxed); }
  // Whether it takes less time to compute the value again than to begin to copy it back now.
  bool is_cheaper_to_compute(const Value& value);
  // The share of the budget that values may take which are copied back ahead of their use.
  int64_t bytes_ahead() const { return HostCopies::most_ahead(limit_now()); }

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
  // That backward has run so many replays: further ones may hold more than a soft limit. Returns after how many more
  // it is to be called again.
  int64_t ease();
  // With the lock of the value's tape: a budget under which a replay that gets by with few bytes has room, and the
  // order in which such a replay gathers the inputs of the value's node.
  int64_t enough_to_replay(const Value& value);
  std::vector<Value*> order_to_replay(const Value& value);
  // An op has failed because memory ran out. Drops something, so that it can be tried again: all that can be dropped,
  // and lowers the budget for good to three quarters of what was held; or an eighth of it, if the budget has no number.
  // False if nothing could be dropped.
  bool drop_for_another_try() ABSL_LOCKS_EXCLUDED(mutex_);

  // --- a budget without a number ---

  bool has_no_number() const { return learned_.has_value(); }
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
  // That went into making room: what is dropped is freed then too.
  const SpentTime& dropping_time() const { return dropping_time_; }
  // As held_bytes(), but of what is not tracked all counts that tapes took from outside.
  int64_t most_held_bytes() const;
  // Of any budget. The ops that ran since the last backward ended were a step.
  void backward_ended(int graph_task) ABSL_LOCKS_EXCLUDED(mutex_);
  // Of the process's past.
  void start_limit_anew();
  // Null unless the budget is for a peak.
  PeakBound* peak() const { return peak_.get(); }
  // More is allocated on the device than the peak, by so many bytes, and nothing could be dropped.
  void exceeded(c10::Device device, int64_t bytes);
  // Drops what is no longer needed by anything.
  void drop_unneeded() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Entry {
    std::weak_ptr<BudgetedTape> tape;
    Value* value = nullptr;
    uint64_t serial = 0;     // ids are reused, and so are the addresses of values
    bool elsewhere = false;  // in elsewhere_
  };
  struct Elsewhere {
    ValueId id;
    uint64_t serial;
    c10::weak_intrusive_ptr<c10::StorageImpl> origin;
  };

  struct KnownForm {
    std::string name;
    std::weak_ptr<const Form> form;
  };

  struct CopyUnderWay {
    ValueId id;
    uint64_t serial;
    std::shared_ptr<HostCopy> copy;
  };

  // The bytes that must be held when nothing more can be dropped, and that are too many.
  struct Shortage {
    int64_t budget;
    int64_t least;  // bytes that must be held at once
    int64_t fixed;  // those of them that a budget does not decide
  };

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

  void make_room(int64_t bytes, c10::function_ref<std::string()> at, int64_t enough, const RaisedLimit& raised)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // By how much what is held, with `bytes` more, exceeds the limit.
  std::optional<Shortage> excess(int64_t bytes) ABSL_LOCKS_EXCLUDED(mutex_);
  // Counts that more is held than soft limits say, and warns once; an error under a strict limit.
  void exceed(const Shortage& shortage, c10::function_ref<std::string()> at, int64_t enough)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void warn_of_many_replays();

  ValueId id_of(const std::weak_ptr<BudgetedTape>& tape, Value& value) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void enter(const std::weak_ptr<BudgetedTape>& tape, Value& value) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void place(const Value& value, Place place, int64_t packed_bytes = Evictor::kNotPacked)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Finds results that the program has dropped since the last look: LibTorch does not tell when it does.
  void look_elsewhere() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  ValueId next_victim(bool spare_last) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void set_limit() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Held bytes that are never dropped.
  int64_t fixed_bytes() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return fixed_bytes_ + outside_.last_ours(); }
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
  // Begins copies if `bytes` more would take most of the room.
  void copy_ahead(int64_t bytes) ABSL_LOCKS_EXCLUDED(mutex_);
  // False if there is none to begin.
  bool begin_copy(int64_t bytes) ABSL_LOCKS_EXCLUDED(mutex_);
  void settle_copies() ABSL_LOCKS_EXCLUDED(mutex_);
  ProgramClock clock() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Drops or packs values until `bytes` more may be held.
  std::optional<Shortage> drop_until_room(int64_t bytes, bool spare_last) ABSL_LOCKS_EXCLUDED(mutex_);
  // Where the form of this name is known, or is to be from now on.
  size_t place_of_form(const std::string& name) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The form in which the victim is to be packed instead of dropped.
  std::optional<uint8_t> form_for(ValueId victim) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Drops the value if no form takes it for which that pays.
  void pack(ValueId id, const Entry& entry, uint8_t form) ABSL_LOCKS_EXCLUDED(mutex_);
  // Drops what values were packed into whose bytes are there beside it. False if there is none.
  bool drop_packed() ABSL_LOCKS_EXCLUDED(mutex_);
  // Whether tapes are asked to let go of bytes before a budget is exceeded or an error is thrown.
  bool anchors_for_room() const;
  bool start_tracking_in_time() ABSL_LOCKS_EXCLUDED(start_mutex_, mutex_);
  // After a backward, for the memory of the accelerator that has run out, if one has: makes an end of what a shortage
  // of this step has left, and says how much was left of it, if that is known. An allocator that asks for values has a
  // lock of its own.
  std::optional<int64_t> settle_accelerator() ABSL_LOCKS_EXCLUDED(mutex_);
  // False if `tell` has returned that for a tape; those that it has told need not be told again.
  bool track(c10::function_ref<bool(BudgetedTape&)> tell) ABSL_EXCLUSIVE_LOCKS_REQUIRED(start_mutex_)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // The value is still the one that was chosen, and nobody has dropped, pinned or saved it since.
  bool may_still_drop(ValueId id, uint64_t serial) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return entries_[id].serial == serial && evictor_.may_drop(id);
  }
  void learn(const LearnedLimit::Shortage& shortage) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void apply_learned() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool drop_all_and_lower() ABSL_LOCKS_EXCLUDED(mutex_);
  int64_t held() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return evictor_.held_bytes() + fixed_bytes_ + outside_.ours();
  }
  // The same, and what tapes hold that are not tracked.
  int64_t held_by_all_tapes() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return untracked_bytes_.load(std::memory_order_relaxed) + held();
  }
  // Threads note without the lock what they hold; of several at once the most remains.
  void note_held(int64_t bytes) {
    int64_t most = most_held_.load(std::memory_order_relaxed);
    while (most < bytes && !most_held_.compare_exchange_weak(most, bytes, std::memory_order_relaxed)) {
    }
  }
  // Counts it if only soft limits are exceeded. Else returns the strict one.
  std::optional<int64_t> go_over(int64_t held, bool& is_first);
  // Drops the value that `choose`, called with the lock, returns, or packs it where that is allowed and better. False
  // if it returns kNoId.
  bool drop_next(c10::function_ref<ValueId()> choose, bool may_pack = false) ABSL_LOCKS_EXCLUDED(mutex_);
  void drop(ValueId id, const Entry& entry) ABSL_LOCKS_EXCLUDED(mutex_);
  // `call` takes the locks of tapes, and may come back here.
  void for_each_tape(c10::function_ref<void(BudgetedTape&)> call) ABSL_LOCKS_EXCLUDED(mutex_);

  // A victim of relieve() that would not have freed anything, pinned in the evictor so that it is not chosen again.
  struct Spared {
    ValueId id;
    uint64_t serial;
  };
  struct Freed {
    int64_t bytes = 0;
    std::optional<c10::DeviceIndex> accelerator;  // of which some were

    void add(const BudgetedTape::Freed& more) {
      bytes += more.bytes;
      if (more.bytes > 0 && !more.device.is_cpu()) {
        accelerator = more.device.index();
      }
    }
  };
  // False if there is none.
  bool relieve_once(std::optional<c10::Device> device, Freed& freed, std::vector<Spared>& spared)
      ABSL_LOCKS_EXCLUDED(mutex_);

  static constexpr size_t kFewTapes = 16;

  std::atomic<int64_t> untracked_bytes_{0};
  std::atomic<int64_t> limit_;  // the evictor's budget
  std::atomic<bool> tracking_{false};
  std::atomic<bool> expects_copies_{false};

  // The thread that starts tracking takes it before any tape's lock, so that others wait until tracking has started.
  Mutex start_mutex_ ABSL_ACQUIRED_BEFORE(mutex_);
  mutable Mutex mutex_;
  bool tracks_new_tapes_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::weak_ptr<BudgetedTape>> tapes_ ABSL_GUARDED_BY(mutex_);  // and some that are gone
  size_t most_tapes_ ABSL_GUARDED_BY(mutex_) = kFewTapes;                   // when those are looked for
  Evictor evictor_ ABSL_GUARDED_BY(mutex_);
  StepMemory memory_ ABSL_GUARDED_BY(mutex_);  // of the steps before, with which the evictor sees what is to come
  HostCopies copies_ ABSL_GUARDED_BY(mutex_);  // of values, and on their way, in the order in which they began
  PackingForms packing_forms_ ABSL_GUARDED_BY(mutex_);
  std::vector<KnownForm> known_forms_ ABSL_GUARDED_BY(mutex_);  // by number
  // The tapes' notes on those; perhaps on some that are done.
  std::deque<CopyUnderWay> under_way_ ABSL_GUARDED_BY(mutex_);
  std::vector<Entry> entries_ ABSL_GUARDED_BY(mutex_);          // by ValueId
  absl::btree_multiset<Limit> limits_ ABSL_GUARDED_BY(mutex_);  // the first is the evictor's
  std::vector<Elsewhere> elsewhere_ ABSL_GUARDED_BY(mutex_);    // results that the program keeps by itself, or did
  uint64_t serial_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t fixed_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t times_short_ ABSL_GUARDED_BY(mutex_) = 0;  // of room, with nothing to drop, under soft limits
  int64_t times_over_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t most_bytes_over_ ABSL_GUARDED_BY(mutex_) = 0;
  EasedLimit eased_ ABSL_GUARDED_BY(mutex_);
  bool has_many_replays_ ABSL_GUARDED_BY(mutex_) = false;  // a backward has run very many under a strict limit
  std::atomic<bool> is_to_tell_of_them_{false};            // relaxed: of several threads one sees true
  OutsideBytes outside_ ABSL_GUARDED_BY(mutex_);
  BackwardTurn backward_turn_;
  const CostSource costs_;
  const uint64_t number_;  // of all budgets of the process

  // Whether there is one never changes.
  std::optional<LearnedLimit> learned_ ABSL_PT_GUARDED_BY(mutex_);
  std::unique_ptr<PeakBound> peak_;                                                     // never changes
  Limit learned_limit_ ABSL_GUARDED_BY(mutex_) = {LearnedLimit::kNone, /*soft=*/true};  // as it stands in limits_
  bool has_several_devices_ ABSL_GUARDED_BY(mutex_) = false;
  // A step lowers the limit at most to three quarters of what was held in its first shortage: late in a backward there
  // is a shortage where little is held, and the next step has all of that memory. And to half on an accelerator, where
  // far more has to go than is missing once its allocator has cut segments into pieces.
  int64_t least_of_step_ ABSL_GUARDED_BY(mutex_) = 1;
  bool was_short_ ABSL_GUARDED_BY(mutex_) = false;       // since the last backward ended
  int64_t replays_of_step_ ABSL_GUARDED_BY(mutex_) = 0;  // since then
  std::atomic<int64_t> most_held_{0};                    // since the last backward ended, of a budget without a number
  std::atomic<int64_t> hurried_drops_{0};
  SpentTime dropping_time_;
  std::atomic<c10::DeviceIndex> short_accelerator_{-1};  // whose memory has run out last, if that of one has
  std::atomic<bool> accelerator_was_short_{false};       // since the last backward ended
  // Of which relieve() had the last reference.
  std::vector<std::shared_ptr<BudgetedTape>> left_over_ ABSL_GUARDED_BY(mutex_);
  const BudgetAtFork at_fork_{start_mutex_, mutex_, backward_turn_.mutex()};
};

}  // namespace ac2::internal

// The trace of one region: its values and nodes, and what autograd holds of them.
//
//   const std::shared_ptr<Tape> tape = Tape::make();
//   {
//     const Tape::Lock locked(*tape);
//     Value* value = locked->storages().current(tensor);
//     …
//   }
//
// A Tape is what can be asked without the lock. All else is in the LockedTape that Lock hands out.
//
// Code of ac2 that reads something without a lock says beside it why that is enough. A pointer that one thread sets up
// and others follow is stored with release and loaded with acquire. A number that only says how many is relaxed,
// because all that happened before is seen in any order. A hint that sends its reader to a lock may be relaxed too.
// x86-64 gives nearly all of this unasked, aarch64 does not. For LibTorch's reference counts see
// libtorch/reference_counts.h.
//
// Threads: any. Objects that die under a Lock are freed after it, so that neither deleters nor destructors of user
// objects ever run under the mutex. No op may run under it either.
#pragma once

#include <c10/macros/Macros.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/FunctionRef.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "ac2/internal/budget/budgeted_tape.h"
#include "ac2/internal/budget/spent_time.h"
#include "ac2/internal/graph/pool.h"
#include "ac2/internal/locks/lock_in_time.h"
#include "ac2/internal/locks/mutex.h"
#include "ac2/internal/tape/locked_tape.h"
#include "ac2/internal/tape/trash.h"
#include "ac2/trace_stats.h"

namespace ac2::internal {

class Tape final : public std::enable_shared_from_this<Tape>, public BudgetedTape {
 public:
  class ABSL_SCOPED_LOCKABLE Lock {
   public:
    explicit Lock(Tape& tape) ABSL_EXCLUSIVE_LOCK_FUNCTION(tape.mutex_) : tape_(tape) {
      tape.mutex_.lock();
      tape.begin_use(trash_);
    }
    // The caller has locked it.
    Lock(Tape& tape, std::adopt_lock_t) ABSL_EXCLUSIVE_LOCKS_REQUIRED(tape.mutex_) : tape_(tape) {
      tape.begin_use(trash_);
    }
    C10_ALWAYS_INLINE ~Lock() ABSL_UNLOCK_FUNCTION() {
      tape_.owner_.store(nullptr, std::memory_order_relaxed);
      tape_.mutex_.unlock();
    }
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;

    // Proof of the lock, as a LockedTape& is wherever it goes. To the analysis the reference is nothing of the kind.
    LockedTape* operator->() const ABSL_NO_THREAD_SAFETY_ANALYSIS { return &tape_.locked_; }
    LockedTape& operator*() const ABSL_NO_THREAD_SAFETY_ANALYSIS { return tape_.locked_; }

   private:
    Tape& tape_;
    std::optional<Trash> trash_;  // if there is any; emptied after the body of ~Lock, so without the mutex
  };

  static std::shared_ptr<Tape> make();
  ~Tape() override;
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  // Begins one op: counts it, and returns how many came before it. By the recording thread alone.
  int64_t next_op() {
    if (unlocked().tidying_is_due_) {
      tidy();
    }
    const int64_t index = recorded_ops_.load(std::memory_order_relaxed);
    recorded_ops_.store(index + 1, std::memory_order_relaxed);
    return index;
  }
  // Whether next_op() may free something, and so run a destructor of the program's.
  bool next_op_may_free() const { return unlocked().tidying_is_due_; }
  int64_t ops_so_far() const { return recorded_ops_.load(std::memory_order_relaxed); }

  // That went into replays. Its spans need no lock.
  SpentTime& replay_time() { return replay_time_; }

  // Null if there is none.
  Budget* budget() const { return unlocked().budget_.get(); }
  // Null as long as nothing is to be offloaded.
  OffloadForm* offload_form() const { return unlocked().offloading_.in_use(); }
  const Observers& observers() const { return unlocked().observers_; }
  // Whether LockedTape::gather_units() is there. Relaxed, because it sends its reader to the lock.
  bool gathers_units() const { return unlocked().gathers_units_.load(std::memory_order_relaxed); }

  // Whether a backward holds what it leaves to the next one. Relaxed, because it only says whether.
  bool keeps_for_next_backward() const { return keeps_for_next_backward_.load(std::memory_order_relaxed); }
  void keep_for_next_backward() { keeps_for_next_backward_.store(true, std::memory_order_relaxed); }

  // The turn of the thread that replays on the tape, which it holds without the lock: no op runs twice for two threads
  // that need it. A replayed op may itself come back here, on the same thread, and is let in.
  RecursiveMutex& replay_turn() ABSL_LOCK_RETURNED(replay_turn_) { return replay_turn_; }

  // Memory for an object that autograd holds, which lives as long as the tape. By the recording thread.
  struct HookMemory {
    HookMemory() {}  // leaves the bytes as they are
    alignas(std::max_align_t) std::byte bytes[64];
  };
  HookMemory* allocate_hook() { return hook_memory_.make(); }
  // The object in it has been destroyed. Any thread.
  void free_hook(HookMemory* memory) { hook_memory_.destroy(memory); }

  // To be called by the recording thread, before anything is recorded that shall count.
  void set_budget(std::shared_ptr<Budget> budget);

  TraceStats stats();
  // Frees what nothing can come to need. Recording an op frees only a few values at a time.
  void sweep();
  // The same, unless fewer ops were recorded since the last time than a quarter of the nodes that were left then. By
  // the recording thread.
  void sweep_if_due();
  // The region is over: only what hooks need stays.
  void close();

  void start_tracking() override;
  std::shared_ptr<HostCopy> copy_to_host(Value* value, const ProgramClock& clock,
                                         c10::function_ref<bool()> may_copy) override;
  std::optional<Packed> free_for_room(Value* value, std::optional<uint8_t> form,
                                      c10::function_ref<bool()> may_free) override;
  void drop_packed(Value* value, c10::function_ref<bool()> is_known) override;
  Freed free_in_time(Value* value, std::optional<c10::Device> device, c10::function_ref<bool()> may_drop) override;
  bool start_tracking_in_time() override;
  void anchor_for_room() override;
  void add_drops(std::vector<uint8_t>& drops) override;
  void settle(c10::ArrayRef<uint8_t> drops) override;

  // By tapes_at_fork.h alone. False if this thread has the lock already, or if another one keeps it. The analysis does
  // not follow the locks of many tapes from the function that takes them to the one that gives them back.
  bool lock_at_fork() ABSL_NO_THREAD_SAFETY_ANALYSIS;
  void unlock_after_fork() ABSL_NO_THREAD_SAFETY_ANALYSIS { mutex_.unlock(); }

 private:
  Tape() = default;
  // For what needs no lock: what does not change once ops are recorded, what is an atomic, and what is the recording
  // thread's alone.
  const LockedTape& unlocked() const ABSL_NO_THREAD_SAFETY_ANALYSIS { return locked_; }
  void tidy();
  void drop_for_room(Value* value, c10::function_ref<bool()> may_drop);
  std::optional<Packed> pack_for_room(Value* value, uint8_t form, c10::function_ref<bool()> may_pack);
  // False also if this thread holds it already.
  bool lock_for_shortage() ABSL_EXCLUSIVE_TRYLOCK_FUNCTION(true, mutex_);
  C10_ALWAYS_INLINE void begin_use(std::optional<Trash>& trash) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    owner_.store(this_thread(), std::memory_order_relaxed);
    locked_.trash_.use(trash);
  }

  Mutex mutex_;
  // this_thread() of whoever holds it. Relaxed: a thread looks only for itself, and what it has stored last it sees.
  std::atomic<const void*> owner_{nullptr};
  LockedTape locked_ ABSL_GUARDED_BY(mutex_);
  std::atomic<bool> keeps_for_next_backward_{false};
  RecursiveMutex replay_turn_ ABSL_ACQUIRED_BEFORE(mutex_);
  SpentTime replay_time_;
  Pool<HookMemory> hook_memory_;
  static constexpr int64_t kSweepShare = 4;
  int64_t next_sweep_ = 0;  // so many ops must be recorded before; the recording thread's alone
  // The recording thread alone stores it, so that it need not be counted up in one step. Others read a number of it,
  // and nothing that was written with it.
  std::atomic<int64_t> recorded_ops_{0};
};

}  // namespace ac2::internal

#include "ac2/internal/tape/live_tapes.h"

#include <algorithm>
#include <atomic>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "ac2/internal/locks/fork_locks.h"
#include "ac2/internal/locks/mutex.h"

namespace ac2::internal {

namespace {

using Tapes = absl::flat_hash_map<const Tape*, std::weak_ptr<Tape>>;

// The counts are of what the tables have.
std::atomic<int> live_count{0};
std::atomic<int> open_count{0};

struct LiveTapes {
  Mutex mutex;
  bool is_locked_for_fork = false;  // by one thread at a time
  Tapes open ABSL_GUARDED_BY(mutex);
  Tapes closed ABSL_GUARDED_BY(mutex);
};

LiveTapes& live_tapes() {
  static auto* tapes = new LiveTapes;  // leaked: graphs, and so tapes, may outlive static destruction
  return *tapes;
}

void gather(const Tapes& tapes, std::vector<std::shared_ptr<Tape>>& gathered) {
  for (const auto& [address, weak] : tapes) {
    if (auto tape = weak.lock()) {
      gathered.push_back(std::move(tape));
    }
  }
}

// The tapes are held until `fn` has run for all. The last reference to a tape must not go under the mutex, which the
// tape's destructor takes.
void for_each_of(const std::vector<std::shared_ptr<Tape>>& tapes, c10::function_ref<void(Tape&)> fn) {
  for (const std::shared_ptr<Tape>& tape : tapes) {
    fn(*tape);
  }
}

}  // namespace

void add_live_tape(const std::shared_ptr<Tape>& tape) {
  LiveTapes& live = live_tapes();
  const MutexLock lock(live.mutex);
  live.open.emplace(tape.get(), tape);
  live_count.fetch_add(1, std::memory_order_relaxed);
  open_count.fetch_add(1, std::memory_order_relaxed);
}

void note_closed_tape(const Tape* tape) {
  LiveTapes& live = live_tapes();
  const MutexLock lock(live.mutex);
  if (auto node = live.open.extract(tape)) {
    live.closed.insert(std::move(node));
    open_count.fetch_sub(1, std::memory_order_relaxed);
  }
}

void remove_live_tape(const Tape* tape) {
  LiveTapes& live = live_tapes();
  const MutexLock lock(live.mutex);
  open_count.fetch_sub(static_cast<int>(live.open.erase(tape)), std::memory_order_relaxed);
  live.closed.erase(tape);
  live_count.fetch_sub(1, std::memory_order_relaxed);
}

void for_each_live_tape(c10::function_ref<void(Tape&)> fn) {
  LiveTapes& live = live_tapes();
  std::vector<std::shared_ptr<Tape>> tapes;
  {
    const MutexLock lock(live.mutex);
    gather(live.open, tapes);
    gather(live.closed, tapes);
  }
  for_each_of(tapes, fn);
}

void for_each_open_tape(c10::function_ref<void(Tape&)> fn) {
  LiveTapes& live = live_tapes();
  std::vector<std::shared_ptr<Tape>> tapes;
  {
    const MutexLock lock(live.mutex);
    gather(live.open, tapes);
  }
  for_each_of(tapes, fn);
}

// The mutex is held from here to unlock_live_tapes(), unless it could not be had: no annotation says that.
void lock_live_tapes(c10::function_ref<void(std::shared_ptr<Tape>)> fn) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  // A thread whose tape was met can open no other region before it has used that tape, for which it has to wait.
  constexpr int kMostRounds = 64;
  LiveTapes& live = live_tapes();
  absl::flat_hash_set<const Tape*> met;
  for (int round = 0; round < kMostRounds; ++round) {
    live.is_locked_for_fork = lock_for_fork(live.mutex);
    if (!live.is_locked_for_fork) {
      return;
    }
    std::vector<std::shared_ptr<Tape>> tapes;
    gather(live.open, tapes);
    gather(live.closed, tapes);
    const auto known = [&met](const std::shared_ptr<Tape>& tape) { return !met.insert(tape.get()).second; };
    // Those that are known are kept by the caller, so that none of them dies here.
    tapes.erase(std::remove_if(tapes.begin(), tapes.end(), known), tapes.end());
    if (tapes.empty()) {
      return;
    }
    unlock_live_tapes();
    for (std::shared_ptr<Tape>& tape : tapes) {
      fn(std::move(tape));
    }
  }
}

void unlock_live_tapes() ABSL_NO_THREAD_SAFETY_ANALYSIS {
  LiveTapes& live = live_tapes();
  if (std::exchange(live.is_locked_for_fork, false)) {
    live.mutex.unlock();
  }
}

bool is_any_tape_alive() {
  return live_count.load(std::memory_order_relaxed) > 0;
}

int open_tapes() {
  return open_count.load(std::memory_order_relaxed);
}

}  // namespace ac2::internal

// Which backwards are using a tape, and whose turn it is to replay on it.
#pragma once

#include <c10/util/SmallVector.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace ac2::internal {

class BackwardState {
 public:
  // One thread at a time replays on a tape, so that no op runs twice for two threads that need it. The mutex is not
  // held meanwhile: a replayed op may itself come back here, on the same thread, and is let in.
  class Turn {
   public:
    explicit Turn(BackwardState& state) : state_(state) {
      std::unique_lock lock(state_.mutex_);
      state_.free_.wait(lock, [&] { return state_.depth_ == 0 || state_.owner_ == std::this_thread::get_id(); });
      state_.owner_ = std::this_thread::get_id();
      ++state_.depth_;
    }
    ~Turn() {
      {
        const std::lock_guard lock(state_.mutex_);
        --state_.depth_;
      }
      state_.free_.notify_one();
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    BackwardState& state_;
  };

  // Needs the tape's lock, as `active`.
  bool is_active(int graph_task) const { return std::find(active.begin(), active.end(), graph_task) != active.end(); }

  // Graph task ids of the backwards that have unpacked something. Guarded by the tape's lock.
  c10::SmallVector<int, 2> active;

 private:
  std::mutex mutex_;
  std::condition_variable free_;
  std::thread::id owner_;
  int depth_ = 0;
};

}  // namespace ac2::internal

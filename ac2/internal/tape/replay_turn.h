// Turns of the threads that replay on a tape: one at a time, so that no op runs twice for two threads that need it.
//
//   const ReplayTurn::Taken turn(tape.replay_turn());   // waits for its turn
//
// No mutex is held meanwhile: a replayed op may itself come back here, on the same thread, and is let in.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

namespace ac2::internal {

class ReplayTurn {
 public:
  class Taken {
   public:
    explicit Taken(ReplayTurn& turn) : turn_(turn) {
      std::unique_lock lock(turn_.mutex_);
      turn_.free_.wait(lock, [&] { return turn_.depth_ == 0 || turn_.owner_ == std::this_thread::get_id(); });
      turn_.owner_ = std::this_thread::get_id();
      ++turn_.depth_;
    }
    ~Taken() {
      {
        const std::lock_guard lock(turn_.mutex_);
        --turn_.depth_;
      }
      turn_.free_.notify_one();
    }
    Taken(const Taken&) = delete;
    Taken& operator=(const Taken&) = delete;

   private:
    ReplayTurn& turn_;
  };

 private:
  std::mutex mutex_;
  std::condition_variable free_;
  std::thread::id owner_;
  int depth_ = 0;
};

}  // namespace ac2::internal

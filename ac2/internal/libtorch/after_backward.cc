#include "ac2/internal/libtorch/after_backward.h"

#include <atomic>
#include <cstddef>
#include <utility>
#include <vector>

#include "ac2/internal/locks/fork_locks.h"
#include "ac2/internal/locks/mutex.h"

namespace ac2::internal {

namespace {

constexpr size_t kMostWaiting = 256;

class Waiting {
 public:
  static Waiting& get() {
    static auto* waiting = new Waiting;  // leaked: the engine's threads outlive static destruction
    return *waiting;
  }

  void add(std::function<bool()> call) {
    const MutexLock lock(mutex_);
    if (calls_.size() < kMostWaiting) {
      calls_.push_back(std::move(call));
      any_.store(true, std::memory_order_relaxed);
    }
  }

  // Relaxed: a call that comes too late for this backward is there for the next one.
  bool any() const { return any_.load(std::memory_order_relaxed); }

  std::vector<std::function<bool()>> take() {
    const MutexLock lock(mutex_);
    any_.store(false, std::memory_order_relaxed);
    return std::exchange(calls_, {});
  }

 private:
  Waiting() { ForkLocks::add_last(mutex_); }

  Mutex mutex_;
  std::vector<std::function<bool()>> calls_ ABSL_GUARDED_BY(mutex_);
  std::atomic<bool> any_{false};
};

bool call_is_done(const std::function<bool()>& call) {
  try {
    return call();
  } catch (...) {
    return true;  // a warning that the program makes an error of, at the end of a backward
  }
}

}  // namespace

void after_backward(std::function<bool()> call) {
  Waiting::get().add(std::move(call));
}

void backward_has_ended() noexcept {
  if (!Waiting::get().any()) {
    return;
  }
  for (std::function<bool()>& call : Waiting::get().take()) {
    if (!call_is_done(call)) {
      Waiting::get().add(std::move(call));
    }
  }
}

}  // namespace ac2::internal

#include "ac2/internal/allocator/kept_limit.h"

#include "ac2/internal/locks/fork_locks.h"

namespace ac2::internal {

KeptLimit::KeptLimit() {
  ForkLocks::add_last(mutex_);
}

void KeptLimit::start(const Keeper& keeper) {
  const MutexLock lock(mutex_);
  if (!is_on()) {
    keeper_ = keeper;
  }
  limit_.store(keeper.limit(), std::memory_order_relaxed);
  // Pairs with the acquire of is_on(). A thread that reads true there sees the keeper.
  is_on_.store(true, std::memory_order_release);
}

void KeptLimit::keep(c10::Device device, c10::function_ref<int64_t()> bytes) {
  int64_t limit = limit_.load(std::memory_order_relaxed);
  if (bytes() <= limit) {
    return;
  }
  int64_t known = limit;
  limit = keeper_.limit();
  // Unless start() has put a smaller one there meanwhile, of a keeper that was not asked here.
  limit_.compare_exchange_strong(known, limit, std::memory_order_relaxed);
  for (int64_t now = bytes(); now > limit; now = bytes()) {
    if (relieve_by(keeper_.free_some, device, now - limit) == 0) {
      keeper_.exceeded(device, now - limit);
      return;
    }
  }
}

}  // namespace ac2::internal

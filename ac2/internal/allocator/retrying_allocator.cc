#include "ac2/internal/allocator/retrying_allocator.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/Device.h>
#include <c10/macros/Macros.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <utility>

#include "ac2/internal/allocator/allocate_again.h"
#include "ac2/internal/allocator/counted_memory.h"
#include "ac2/internal/allocator/kept_blocks.h"
#include "ac2/internal/allocator/malloc_settings.h"
#include "ac2/internal/allocator/shortage.h"
#include "ac2/internal/libtorch/out_of_memory.h"
#include "ac2/internal/locks/fork_locks.h"
#include "ac2/internal/locks/mutex.h"

namespace ac2::internal {

namespace {

constexpr int64_t kAsksFrom = int64_t{64} << 10;
// A kept block takes no memory, but a limit that shrinks is to be noticed where all blocks are kept ones.
constexpr int64_t kKeptCountsAs = 16;

// The state that all fronts of the process share.
class Shared {
 public:
  static Shared& get() {
    static auto* shared = [] {
      auto* made = new Shared;  // leaked, as the fronts: tensors with static lifetime are freed after main()
      ForkLocks::add_last(made->mutex_);
      return made;
    }();
    return *shared;
  }

  std::shared_ptr<const MemoryGauge> gauge() {
    const MutexLock lock(mutex_);
    return gauge_;
  }
  void set_gauge(std::shared_ptr<const MemoryGauge> gauge) {
    const MutexLock lock(mutex_);
    gauge_ = std::move(gauge);
  }

  void put_in_front() {
    const MutexLock lock(mutex_);
    if (!is_front(c10::GetCPUAllocator())) {
      auto* front = new RetryingAllocator(*c10::GetCPUAllocator());
      CountedMemory::get().set_uncounted(front->uncounted_deleter());
      // Pairs with the acquire of is_front(). A thread that reads there that this is the front hands out its deleter,
      // which calls the uncounted one.
      front_.store(front, std::memory_order_release);
      constexpr uint8_t kHighestPriority = 255;
      // Last. A thread that reads LibTorch's plain pointer to the front finds the front finished, and front_ set.
      std::atomic_thread_fence(std::memory_order_release);
      c10::SetCPUAllocator(front, kHighestPriority);
    }
  }
  // Pairs with the release of front_. Whoever has a front has it by way of LibTorch's pointer, which is set after.
  void see_front_finished() const { static_cast<void>(front_.load(std::memory_order_acquire)); }
  bool is_front(const c10::Allocator* allocator) const { return front_.load(std::memory_order_acquire) == allocator; }

 private:
  Mutex mutex_;
  std::atomic<const c10::Allocator*> front_{nullptr};
  std::shared_ptr<const MemoryGauge> gauge_ ABSL_GUARDED_BY(mutex_) = std::make_shared<MachineMemory>();
};

// Of what the gauge said last, bytes that may be allocated before it is asked again. Relaxed: a number that is a little
// off makes a thread ask the gauge earlier or later.
std::atomic<int64_t> known_room{0};

// Gives malloc's free memory back and asks again, but seldom where that has not helped. Giving back may take
// milliseconds.
MemoryRoom room_after_return(const MemoryGauge& gauge, const MemoryRoom& before) {
  constexpr int kSkips = 64;
  static std::atomic<int> skips{0};  // relaxed: several threads at once may skip one time more or less
  if (skips.load(std::memory_order_relaxed) > 0) {
    skips.fetch_sub(1, std::memory_order_relaxed);
    return before;
  }
  return_free_memory();
  MemoryRoom after = gauge.room();
  if (after.bytes - before.bytes < before.reserve / 8) {
    skips.store(kSkips, std::memory_order_relaxed);
  }
  return after;
}

// Where resident bytes are limited, what was freed counts once malloc has given it back: values that were allocated
// before large blocks were mapped lie in its heap. `before` is what the gauge said last, and becomes what it says now.
// A gauge that says no more than before sees nothing of what is freed here, and is not heard.
int64_t still_missing(const MemoryGauge& gauge, int64_t bytes, MemoryRoom& before) {
  return_free_memory();
  MemoryRoom now = gauge.room();
  const int64_t missing = now.bytes > before.bytes ? bytes - now.bytes : 0;
  before = std::move(now);
  return missing;
}

// Nothing is left to free. Where the process would be ended, this is an error.
void check_is_there(const MemoryGauge& gauge, int64_t bytes) {
  return_free_memory();
  const MemoryRoom room = gauge.room();
  TORCH_CHECK_WITH(OutOfMemoryError,
                   room.limit != MemoryRoom::Limit::kMachine || room.swaps || bytes <= room.bytes + room.reserve,
                   "ac2: can't allocate memory: ", bytes, " bytes were asked for, and ", room.name, " leaves ",
                   room.bytes + room.reserve, ". ", shortage_text(c10::kCPU));
}

void remember(const MemoryRoom& room, int64_t taken) {
  known_room.store(std::max((room.bytes - taken) / 4, room.reserve / 8), std::memory_order_relaxed);
}

// The gauge is asked. Kept blocks go if they have grown into the reserve.
MemoryRoom look_for_room(const MemoryGauge& gauge, int64_t bytes) {
  has_address_space_limit_changed();  // the gauge tells of the limit that there is now
  MemoryRoom room = gauge.room();
  // Holes in malloc's heap are address space too, which nothing gives back.
  if (room.bytes < bytes || room.limit == MemoryRoom::Limit::kAddressSpace) {
    KeptBlocks::get().start();
  }
  return room;
}

// Before `bytes` are allocated that are more than is known to be there.
C10_NOINLINE void make_room(int64_t bytes) {
  KeptBlocks& kept = KeptBlocks::get();
  const std::shared_ptr<const MemoryGauge> gauge = Shared::get().gauge();
  MemoryRoom room = look_for_room(*gauge, bytes);
  if (room.bytes < bytes) {
    room.bytes += kept.give_back(bytes - room.bytes);
  }
  if (room.bytes < bytes) {
    room = room_after_return(*gauge, room);
  }
  int64_t missing = bytes - room.bytes;
  while (missing > 0) {
    const int64_t freed = relieve_shortage(c10::kCPU, missing);
    if (freed == 0) {
      check_is_there(*gauge, bytes);
      break;
    }
    if (kept.has(static_cast<size_t>(bytes))) {
      remember(room, 0);  // the caller takes that block
      return;
    }
    kept.give_back(freed);
    // Freed bytes count also if the gauge does not see them, because they may lie in malloc's heap and serve from
    // there.
    missing -= freed;
    if (missing <= 0 && room.limit == MemoryRoom::Limit::kMachine) {
      missing = still_missing(*gauge, bytes, room);
    }
  }
  remember(room, bytes);
}

// After a kept block of `bytes` was taken, which takes nothing of the machine. Where others have taken of the reserve
// meanwhile, or a limit has shrunk, the reserve is restored: by kept blocks, and then by values, for as many bytes as
// this block has at a time.
C10_NOINLINE void restore_reserve(int64_t bytes) {
  KeptBlocks& kept = KeptBlocks::get();
  MemoryRoom room = look_for_room(*Shared::get().gauge(), 0);
  if (room.lacking > 0) {
    room.lacking -= kept.give_back(room.lacking);
  }
  if (const int64_t missing = std::min(bytes, room.lacking); missing > 0) {
    kept.give_back(relieve_shortage(c10::kCPU, missing));
  }
  remember(room, 0);
}

}  // namespace

void RetryingAllocator::put_in_front() {
  Shared::get().put_in_front();
}

void RetryingAllocator::set_gauge(std::shared_ptr<const MemoryGauge> gauge) {
  Shared::get().set_gauge(gauge != nullptr ? std::move(gauge) : std::make_shared<MachineMemory>());
  known_room.store(0, std::memory_order_relaxed);
}

c10::Allocator& RetryingAllocator::behind() const {
  Shared::get().see_front_finished();
  return behind_;
}

bool RetryingAllocator::counts() const {
  return C10_UNLIKELY(CountedMemory::get().counts()) && Shared::get().is_front(this);
}

bool RetryingAllocator::has_counted() const {
  return C10_UNLIKELY(CountedMemory::get().has_counted()) && Shared::get().is_front(this);
}

c10::DeleterFnPtr RetryingAllocator::raw_deleter() const {
  return has_counted() ? &CountedMemory::free : uncounted_deleter();
}

c10::DeleterFnPtr RetryingAllocator::uncounted_deleter() const {
  return is_before_libtorchs() ? &KeptBlocks::free : behind().raw_deleter();
}

bool RetryingAllocator::is_before_libtorchs() const {
  return &behind() == c10::GetDefaultCPUAllocator();
}

c10::DataPtr RetryingAllocator::allocate(size_t bytes) {
  return counts() ? CountedMemory::get().allocate(bytes, [&] { return allocate_uncounted(bytes); })
                  : allocate_uncounted(bytes);
}

c10::DataPtr RetryingAllocator::allocate_uncounted(size_t bytes) {
  KeptBlocks& kept = KeptBlocks::get();
  const auto keeps = [&] { return C10_UNLIKELY(kept.has_started()) && is_before_libtorchs() && kept.keeps(bytes); };
  const auto wanted = static_cast<int64_t>(bytes);
  c10::DataPtr data = keeps() ? kept.take(bytes) : c10::DataPtr();
  if (wanted >= kAsksFrom) {
    const int64_t counted = data ? wanted / kKeptCountsAs : wanted;
    if (known_room.fetch_sub(counted, std::memory_order_relaxed) < counted ||
        C10_UNLIKELY(has_address_space_limit_changed())) {
      if (data) {
        restore_reserve(wanted);
      } else {
        make_room(wanted);
        data = keeps() ? kept.take(bytes) : c10::DataPtr();  // a value of that size may have been dropped
      }
    }
  }
  if (data) {
    return data;
  }
  data = allocate_behind(bytes);
  return keeps() ? kept.note(std::move(data), bytes) : std::move(data);
}

c10::DataPtr RetryingAllocator::allocate_behind(size_t bytes) {
  KeptBlocks& kept = KeptBlocks::get();
  do {
    try {
      return behind().allocate(bytes);
    } catch (const c10::Error& error) {
      if (!is_out_of_memory(error)) {
        throw;
      }
    }
  } while (kept.give_back(static_cast<int64_t>(bytes)) > 0);
  kept.start();
  const auto allocate = [&] {
    kept.give_back(KeptBlocks::kAll);  // what was dropped
    return behind().allocate(bytes);
  };
  return allocate_again(c10::kCPU, bytes, allocate, &return_free_memory);
}

}  // namespace ac2::internal

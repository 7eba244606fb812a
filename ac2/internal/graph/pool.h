// Memory for the many small objects of one tape: carved from chunks, reused, and given back when the tape goes.
//
// Per tape, because a pool per thread would keep its memory for ever. Chunks grow from small ones, because most regions
// are of a few dozen ops.
//
// Threads: make() by one thread at a time, be it by the tape's lock. destroy() by any: objects are destroyed after the
// lock has been released, and their memory is handed back through a stack that only make() empties.
#pragma once

#include <c10/macros/Macros.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <memory>
#include <new>
#include <utility>
#include <vector>

namespace ac2::internal {

template <class T>
class Pool {
 public:
  Pool() = default;
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  template <class... Args>
  T* make(Args&&... args) {
    if constexpr (sizeof...(args) == 0) {
      return ::new (allocate()) T;  // T() would fill the memory with zeros before its members are made
    } else {
      return ::new (allocate()) T(std::forward<Args>(args)...);
    }
  }

  void destroy(T* object) {
    object->~T();
    Slot* slot = ::new (static_cast<void*>(object)) Slot{returned_.load(std::memory_order_relaxed)};
    // The release pairs with the acquire of allocate(), for this slot and, since each exchange goes on from the one
    // before, for all below it. That what is exchanged may have been there before does no harm: nobody pops one slot
    // alone.
    while (!returned_.compare_exchange_weak(slot->next, slot, std::memory_order_release, std::memory_order_relaxed)) {
    }
  }

 private:
  struct Slot {
    Slot* next;
  };
  static_assert(sizeof(T) >= sizeof(Slot) && alignof(T) >= alignof(Slot));

  static constexpr size_t kMostPerChunk = (size_t{1} << 16) / sizeof(T);

  C10_ALWAYS_INLINE void* allocate() {
    if (free_ == nullptr) {
      free_ = returned_.exchange(nullptr, std::memory_order_acquire);
    }
    if (free_ != nullptr) {
      return std::exchange(free_, free_->next);
    }
    if (left_ == 0) {
      chunks_.push_back(std::make_unique_for_overwrite<Storage[]>(per_chunk_));
      left_ = per_chunk_;
      per_chunk_ = std::min(2 * per_chunk_, kMostPerChunk);
    }
    return &chunks_.back()[--left_];
  }

  struct Storage {
    alignas(T) std::byte bytes[sizeof(T)];
  };

  Slot* free_ = nullptr;
  size_t left_ = 0;
  size_t per_chunk_ = std::min(size_t{16}, kMostPerChunk);
  std::vector<std::unique_ptr<Storage[]>> chunks_;
  std::atomic<Slot*> returned_{nullptr};
};

}  // namespace ac2::internal

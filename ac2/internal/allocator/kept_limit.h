// A number of bytes that allocations of a process should not exceed, and its keeper, who frees some in time.
//
//   static KeptLimit limit;                                      // lives to the end of the process
//   limit.start({.limit = …, .free_some = …, .exceeded = …});
//   if (limit.is_on()) {
//     limit.keep(device, [&] { return allocated_bytes() + bytes; });   // before `bytes` are allocated
//   }
//
// Where the keeper cannot free enough, the keeper is told by how much the limit is exceeded, and the caller allocates
// all the same.
//
// Threads: any.
#pragma once

#include <c10/core/Device.h>
#include <c10/util/FunctionRef.h>

#include <atomic>
#include <cstdint>
#include <limits>

#include "ac2/internal/allocator/shortage.h"
#include "ac2/internal/locks/mutex.h"

namespace ac2::internal {

class KeptLimit {
 public:
  struct Keeper {
    int64_t (*limit)() = nullptr;                                   // the smallest in force
    ShortageHandler free_some = nullptr;                            // of those whose limit it is
    void (*exceeded)(c10::Device device, int64_t bytes) = nullptr;  // by so many
  };

  KeptLimit();
  KeptLimit(const KeptLimit&) = delete;
  KeptLimit& operator=(const KeptLimit&) = delete;

  // Also where the keeper's limits have changed. The first keeper stays.
  void start(const Keeper& keeper);
  bool is_on() const { return is_on_.load(std::memory_order_acquire); }
  // `bytes` says how many are allocated on the device, with those that are about to be.
  void keep(c10::Device device, c10::function_ref<int64_t()> bytes);

 private:
  Mutex mutex_;
  std::atomic<bool> is_on_{false};
  // May be too small: of one that is in force no more. Relaxed: a thread that knows of a limit has seen start() store
  // it, and another one keeps within the limits that it knows of.
  std::atomic<int64_t> limit_{std::numeric_limits<int64_t>::max()};
  // Written once, under the lock and before is_on_ says so. So it is read without.
  Keeper keeper_;
};

}  // namespace ac2::internal

// The CPU memory that tensors hold, counted, for those who bound it.
//
//   CountedMemory::get().start(keeper);              // from now on, for the rest of the process
//   if (memory.counts()) {
//     data = memory.allocate(bytes, [&] { return behind.allocate(bytes); });   // by the allocator in front
//   }
//
// Counted is what was asked for, of blocks that were allocated since start(). Such a block is freed by a function of
// this file, which looks up in a table who frees it in truth; its context is its data, as c10 demands of blocks that
// are allocated raw. Before start() nothing is counted, wrapped or looked up.
//
// Somebody who measures a step has allocations counted for that long (MemoryMeter), without a keeper. Blocks that were
// allocated meanwhile stay in the table until they are freed.
//
// Where an allocation would bring what is held over the keeper's limit, the keeper frees some first. Where it cannot,
// the allocation is made all the same and the keeper is told by how much the limit is exceeded.
//
// Threads: any. The bytes that a thread is about to allocate count already, so that several threads at once do not
// exceed the limit.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/util/FunctionRef.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "ac2/internal/allocator/kept_limit.h"
#include "ac2/internal/locks/mutex.h"

namespace ac2::internal {

class CountedMemory {
 public:
  static CountedMemory& get();

  // As KeptLimit::start().
  void start(const KeptLimit::Keeper& keeper) {
    has_counted_.store(true, std::memory_order_relaxed);
    limit_.start(keeper);
  }
  bool counts() const { return limit_.is_on() || is_measured_.load(std::memory_order_relaxed); }
  // Whether there may be counted blocks.
  bool has_counted() const { return has_counted_.load(std::memory_order_relaxed); }
  int64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

  struct Measured {
    int64_t highest = 0;    // the most that bytes() was
    int64_t allocated = 0;  // the bytes of all allocations
  };
  // One at a time.
  void start_measuring();
  void stop_measuring() { is_measured_.store(false, std::memory_order_relaxed); }
  // Since start_measuring(), or since the last call.
  Measured measured();
  bool has_counted(const void* data);

  c10::DataPtr allocate(size_t bytes, c10::function_ref<c10::DataPtr()> allocate);
  // The deleter of counted blocks. Other blocks are freed by `uncounted`, the deleter of the allocator behind.
  static void free(void* data);
  void set_uncounted(c10::DeleterFnPtr uncounted) { uncounted_.store(uncounted, std::memory_order_release); }

 private:
  struct Block {
    size_t bytes;
    c10::DeleterFnPtr deleter;
  };
  struct Shard {
    Mutex mutex;
    absl::flat_hash_map<const void*, Block> blocks ABSL_GUARDED_BY(mutex);
  };
  static constexpr size_t kShards = 64;

  CountedMemory() = default;
  void note_allocation(int64_t bytes, int64_t now);
  Shard& shard_of(const void* data) { return shards_[(reinterpret_cast<uintptr_t>(data) >> 6) % kShards]; }

  KeptLimit limit_;
  // Relaxed: each thread adds what it wants before it looks, and additions to one number have an order of their own.
  // Of several threads that exceed the limit together, the last to add sees what all of them want.
  std::atomic<int64_t> bytes_{0};
  // Relaxed: a thread that begins to measure sees its own allocations, and those of others are counted from when they
  // see it.
  std::atomic<bool> is_measured_{false};
  std::atomic<bool> has_counted_{false};  // never becomes false again
  std::atomic<int64_t> highest_{0};
  std::atomic<int64_t> allocated_{0};
  // The release of set_uncounted() pairs with the acquire of free().
  std::atomic<c10::DeleterFnPtr> uncounted_{nullptr};
  std::array<Shard, kShards> shards_;
};

}  // namespace ac2::internal

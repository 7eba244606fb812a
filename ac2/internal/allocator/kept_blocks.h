// Large blocks of the CPU that were freed, and wait for the next request of their size. Training repeats its sizes, and
// a block that malloc maps anew costs a page fault for each of its pages.
//
//   KeptBlocks& kept = KeptBlocks::get();
//   kept.start();                                          // with the first shortage, or the first budget of a peak
//   if (kept.keeps(bytes)) {
//     if (c10::DataPtr data = kept.take(bytes)) return data;
//     return kept.note(behind.allocate(bytes), bytes);     // free() is the deleter of the block from now on
//   }
//   missing -= kept.give_back(missing);                    // where memory is short, before any value is dropped
//
// A kept block serves requests of exactly its size. It is not cut, and not merged with others.
//
// Kept blocks are memory of the process, and none of a tensor's: CountedMemory does not count them. Blocks in use and
// kept blocks together never take more than the most that blocks in use alone have taken. So a peak that tensors keep
// is one that the process keeps. A block for which nobody asks is given back in time (kPatience).
//
// Nothing is kept while LibTorch's profiler records memory, so that it sees each allocation, nor where LibTorch is told
// to fill new memory.
//
// Threads: any. There is one table with one lock, which is held for some look-ups and never while memory is mapped or
// given back.
#pragma once

#include <c10/core/Allocator.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>

#include "absl/container/flat_hash_map.h"
#include "ac2/internal/locks/mutex.h"

namespace ac2::internal {

class KeptBlocks {
 public:
  static constexpr int64_t kAll = std::numeric_limits<int64_t>::max();
  // A block is given back when so many times the bytes of all blocks were handed out since it was freed.
  static constexpr int64_t kPatience = 32;

  static KeptBlocks& get();

  // From now on, for the rest of the process. malloc maps each large block by itself from now on (malloc_settings.h).
  void start();
  bool has_started() const { return has_started_.load(std::memory_order_relaxed); }
  // Whether blocks of that size, which is not negative, are kept on this thread now.
  bool keeps(size_t bytes) const;

  // The block of that size which was freed last. Null if none is kept.
  c10::DataPtr take(size_t bytes);
  bool has(size_t bytes);
  // `fresh`, whose deleter is free() from now on. What it was before becomes that of the block itself.
  c10::DataPtr note(c10::DataPtr fresh, size_t bytes);
  // Keeps a block. A block that was not noted goes to LibTorch's allocator.
  static void free(void* data);

  // Gives back kept blocks, those that were freed first before others, until `bytes` were given back or none is left.
  // Returns how many bytes were.
  int64_t give_back(int64_t bytes);

  struct Counts {
    int64_t kept = 0;         // bytes
    int64_t in_use = 0;       // bytes of blocks that were noted
    int64_t most_in_use = 0;  // the most that was in use
    int64_t taken = 0;        // how often a kept block was taken
    int64_t noted = 0;        // how often there was none
  };
  Counts counts();

 private:
  struct Block;
  struct Links {
    Block* older = nullptr;
    Block* newer = nullptr;
  };
  struct Chain;
  struct Size;
  class Freed;

  KeptBlocks();
  ~KeptBlocks() = delete;

  void keep(Block& block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Block& take_from_kept(Block& block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void give_back_locked(Block& block, Freed& freed) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void give_back_surplus(Freed& freed) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Mutex mutex_;
  // Relaxed: a thread that does not see it yet maps and frees its blocks as before.
  std::atomic<bool> has_started_{false};
  // All blocks that were noted, those that are kept too. Freeing a block inserts nothing here: it may happen where
  // memory is short.
  absl::flat_hash_map<const void*, std::unique_ptr<Block>> blocks_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<size_t, std::unique_ptr<Size>> sizes_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<Chain> kept_ ABSL_GUARDED_BY(mutex_);  // of all sizes
  Counts counts_ ABSL_GUARDED_BY(mutex_);
  int64_t handed_out_ ABSL_GUARDED_BY(mutex_) = 0;  // bytes, ever
};

}  // namespace ac2::internal

// Blocks of pinned host memory, which are reused because the host is slow to pin memory.
//
//   std::optional<PinnedPool::Block> block = pool.take(nbytes, cap);   // null: there is none
//   …copy into it, after block->busy…
//   pool.give_back(std::move(*block));
//
// Threads: not thread-safe. The pool allocates memory and queries events, so the lock that guards the pool must be one
// under which that is allowed.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Event.h>
#include <c10/core/Storage.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>

#include "absl/container/btree_map.h"

namespace ac2::internal {

class PinnedPool {
 public:
  struct Block {
    c10::Storage storage;
    // Happens when the copies that use the block are done; null if there are none. A write into the block must wait for
    // it.
    std::shared_ptr<c10::Event> busy;
  };

  // `allocator` gives pinned memory and lives as long as the process.
  explicit PinnedPool(c10::Allocator& allocator) : allocator_(allocator) {}

  // Null if the pool would then have more than `cap` bytes, or if the host has none left. Before it gives up, it
  // returns blocks that are not in use to the host.
  std::optional<Block> take(size_t nbytes, int64_t cap);
  void give_back(Block block);
  // Returns blocks that are not in use to the host, except for those that copies still use.
  void release_unused();

  int64_t bytes() const { return bytes_; }
  int64_t bytes_in_use() const { return bytes_in_use_; }

 private:
  std::optional<Block> reuse(size_t nbytes);
  std::optional<Block> allocate(size_t capacity, int64_t cap);

  c10::Allocator& allocator_;
  // Unused blocks by size. Among blocks of one size the one that was given back first is taken next, because it is the
  // least likely to be busy.
  absl::btree_map<size_t, std::deque<Block>> unused_;
  int64_t bytes_ = 0;
  int64_t bytes_in_use_ = 0;
};

}  // namespace ac2::internal

// Pinned blocks of the host's memory, handed out again and again.
//
//   std::optional<PinnedPool::Block> block = pool.take(nbytes, cap);   // null: there is none
//   …copy into it, after block->busy…
//   pool.give_back(std::move(*block));
//
// Not thread-safe, and whoever holds a lock around it may be one that runs allocations and asks events.
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
    // Copies that use it are done once this has happened; null: there are none. A write on a stream waits for it.
    std::shared_ptr<c10::Event> busy;
  };

  // `allocator` gives pinned memory and lives as long as the process.
  explicit PinnedPool(c10::Allocator& allocator) : allocator_(allocator) {}

  // Null if the pool would have more than `cap` bytes then, or the host has none left. Blocks that are not in use are
  // given back to the host before that.
  std::optional<Block> take(size_t nbytes, int64_t cap);
  void give_back(Block block);
  // But for those that are busy.
  void release_unused();

  int64_t bytes() const { return bytes_; }
  int64_t bytes_in_use() const { return bytes_in_use_; }

 private:
  std::optional<Block> reuse(size_t nbytes);
  std::optional<Block> allocate(size_t capacity, int64_t cap);

  c10::Allocator& allocator_;
  // By size; of one size the one that was given back first is the next, because it is the least likely to be busy.
  absl::btree_map<size_t, std::deque<Block>> unused_;
  int64_t bytes_ = 0;
  int64_t bytes_in_use_ = 0;
};

}  // namespace ac2::internal

#include "ac2/internal/offload/pinned_pool.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

namespace ac2::internal {

namespace {

constexpr size_t kGranularity = 512;

size_t capacity_for(size_t nbytes) {
  return (std::max<size_t>(nbytes, 1) + kGranularity - 1) / kGranularity * kGranularity;
}

int64_t block_bytes(const PinnedPool::Block& block) {
  return static_cast<int64_t>(block.storage.nbytes());
}

}  // namespace

std::optional<PinnedPool::Block> PinnedPool::reuse(size_t nbytes) {
  const size_t capacity = capacity_for(nbytes);
  const auto it = unused_.lower_bound(capacity);
  // No more than a quarter of a block may be wasted, because the next value may need it whole.
  if (it == unused_.end() || it->first > capacity + capacity / 3) {
    return std::nullopt;
  }
  Block block = std::move(it->second.front());
  it->second.pop_front();
  if (it->second.empty()) {
    unused_.erase(it);
  }
  return block;
}

std::optional<PinnedPool::Block> PinnedPool::allocate(size_t capacity, int64_t cap) {
  if (static_cast<int64_t>(capacity) > cap - bytes_) {
    return std::nullopt;
  }
  try {
    Block block{c10::Storage(c10::Storage::use_byte_size_t(), capacity, allocator_.allocate(capacity), &allocator_,
                             /*resizable=*/false),
                nullptr};
    bytes_ += static_cast<int64_t>(capacity);
    return block;
  } catch (const c10::Error&) {
    return std::nullopt;  // devices differ in the type of error that says that memory ran out
  }
}

std::optional<PinnedPool::Block> PinnedPool::take(size_t nbytes, int64_t cap) {
  std::optional<Block> block = reuse(nbytes);
  if (!block) {
    block = allocate(capacity_for(nbytes), cap);
  }
  if (!block && bytes_ > bytes_in_use_) {
    release_unused();
    block = allocate(capacity_for(nbytes), cap);
  }
  if (block) {
    bytes_in_use_ += block_bytes(*block);
  }
  return block;
}

void PinnedPool::give_back(Block block) {
  bytes_in_use_ -= block_bytes(block);
  unused_[block.storage.nbytes()].push_back(std::move(block));
}

void PinnedPool::release_unused() {
  for (auto it = unused_.begin(); it != unused_.end();) {
    std::deque<Block> busy;
    for (Block& block : it->second) {
      if (block.busy && !block.busy->query()) {
        busy.push_back(std::move(block));
      } else {
        bytes_ -= block_bytes(block);
      }
    }
    it->second = std::move(busy);
    it = it->second.empty() ? unused_.erase(it) : std::next(it);
  }
}

}  // namespace ac2::internal

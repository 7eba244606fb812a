#include "ac2/internal/allocator/counted_memory.h"

#include <c10/util/ScopeExit.h>

#include <optional>
#include <utility>

#include "ac2/internal/allocator/fork_locks.h"

namespace ac2::internal {

CountedMemory& CountedMemory::get() {
  static auto* memory = [] {
    auto* made = new CountedMemory;  // leaked: tensors with static lifetime are freed after main()
    ForkLocks::add_last(made->start_mutex_);
    for (Shard& shard : made->shards_) {
      ForkLocks::add_last(shard.mutex);
    }
    return made;
  }();
  return *memory;
}

void CountedMemory::start(const Keeper& keeper) {
  const std::lock_guard lock(start_mutex_);
  if (!counts()) {
    keeper_ = keeper;
  }
  limit_.store(keeper.limit(), std::memory_order_relaxed);
  // Pairs with the acquire of counts(). A thread that reads true there sees the keeper.
  counts_.store(true, std::memory_order_release);
}

void CountedMemory::keep_within_limit() {
  int64_t limit = limit_.load(std::memory_order_relaxed);
  if (bytes() <= limit) {
    return;
  }
  int64_t known = limit;
  limit = keeper_.limit();
  // Unless start() has put a smaller one there meanwhile, of a keeper that was not asked here.
  limit_.compare_exchange_strong(known, limit, std::memory_order_relaxed);
  while (bytes() > limit) {
    if (relieve_by(keeper_.free_some, c10::kCPU, bytes() - limit) == 0) {
      keeper_.exceeded(bytes() - limit);
      return;
    }
  }
}

c10::DataPtr CountedMemory::allocate(size_t bytes, c10::function_ref<c10::DataPtr()> allocate) {
  const auto wanted = static_cast<int64_t>(bytes);
  bytes_.fetch_add(wanted, std::memory_order_relaxed);
  auto not_taken = c10::make_scope_exit([&] { bytes_.fetch_sub(wanted, std::memory_order_relaxed); });
  keep_within_limit();
  c10::DataPtr data = allocate();
  void* const block = data.get();
  if (block == nullptr || data.get_context() != block) {
    return data;  // nothing to free, or freed by what only its own deleter knows
  }
  const c10::Device device = data.device();
  {
    Shard& shard = shard_of(block);
    const std::lock_guard lock(shard.mutex);
    shard.blocks.insert_or_assign(block, Block{.bytes = bytes, .deleter = data.get_deleter()});
  }
  not_taken.release();
  data.release_context();
  return {block, block, &CountedMemory::free, device};
}

void CountedMemory::free(void* data) {
  if (data == nullptr) {
    return;
  }
  CountedMemory& memory = get();
  std::optional<Block> block;
  {
    Shard& shard = memory.shard_of(data);
    const std::lock_guard lock(shard.mutex);
    if (const auto found = shard.blocks.find(data); found != shard.blocks.end()) {
      block = found->second;
      shard.blocks.erase(found);
    }
  }
  if (!block) {
    memory.uncounted_.load(std::memory_order_acquire)(data);
    return;
  }
  block->deleter(data);
  memory.bytes_.fetch_sub(static_cast<int64_t>(block->bytes), std::memory_order_relaxed);
}

}  // namespace ac2::internal

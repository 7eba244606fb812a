#include "ac2/internal/allocator/counted_memory.h"

#include <c10/util/ScopeExit.h>

#include <optional>
#include <utility>

#include "ac2/internal/libtorch/cpu_deleters.h"
#include "ac2/internal/locks/fork_locks.h"

namespace ac2::internal {

CountedMemory& CountedMemory::get() {
  static auto* memory = [] {
    auto* made = new CountedMemory;  // leaked: tensors with static lifetime are freed after main()
    for (Shard& shard : made->shards_) {
      ForkLocks::add_last(shard.mutex);
    }
    add_cpu_deleter(&CountedMemory::free);
    return made;
  }();
  return *memory;
}

void CountedMemory::start_measuring() {
  highest_.store(bytes(), std::memory_order_relaxed);
  allocated_.store(0, std::memory_order_relaxed);
  has_counted_.store(true, std::memory_order_relaxed);
  is_measured_.store(true, std::memory_order_relaxed);
}

CountedMemory::Measured CountedMemory::measured() {
  return {.highest = highest_.exchange(bytes(), std::memory_order_relaxed),
          .allocated = allocated_.exchange(0, std::memory_order_relaxed)};
}

bool CountedMemory::has_counted(const void* data) {
  Shard& shard = shard_of(data);
  const MutexLock lock(shard.mutex);
  return shard.blocks.contains(data);
}

void CountedMemory::note_allocation(int64_t bytes, int64_t now) {
  allocated_.fetch_add(bytes, std::memory_order_relaxed);
  int64_t highest = highest_.load(std::memory_order_relaxed);
  while (highest < now && !highest_.compare_exchange_weak(highest, now, std::memory_order_relaxed)) {
  }
}

c10::DataPtr CountedMemory::allocate(size_t bytes, c10::function_ref<c10::DataPtr()> allocate) {
  const auto wanted = static_cast<int64_t>(bytes);
  const int64_t now = bytes_.fetch_add(wanted, std::memory_order_relaxed) + wanted;
  auto not_taken = c10::make_scope_exit([&] { bytes_.fetch_sub(wanted, std::memory_order_relaxed); });
  limit_.keep(c10::kCPU, [&] { return this->bytes(); });
  c10::DataPtr data = allocate();
  void* const block = data.get();
  if (block == nullptr || data.get_context() != block) {
    return data;  // nothing to free, or freed by what only its own deleter knows
  }
  if (is_measured_.load(std::memory_order_relaxed)) {
    note_allocation(wanted, now);
  }
  const c10::Device device = data.device();
  {
    Shard& shard = shard_of(block);
    const MutexLock lock(shard.mutex);
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
    const MutexLock lock(shard.mutex);
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

#include "ac2/internal/allocator/kept_blocks.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/Device.h>
#include <c10/util/Flags.h>

#include <algorithm>
#include <new>
#include <utility>

#include "ac2/internal/allocator/malloc_settings.h"
#include "ac2/internal/libtorch/cpu_deleters.h"
#include "ac2/internal/locks/fork_locks.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

// LibTorch declares them in no header.
C10_DECLARE_bool(caffe2_cpu_allocator_do_zero_fill);
C10_DECLARE_bool(caffe2_cpu_allocator_do_junk_fill);

namespace ac2::internal {

namespace {

// AddressSanitizer tells of who reads a block that is kept, as it tells of who reads freed memory.
#ifdef __SANITIZE_ADDRESS__
void forbid_access(void* data, size_t bytes) {
  __asan_poison_memory_region(data, bytes);
}
void allow_access(void* data, size_t bytes) {
  __asan_unpoison_memory_region(data, bytes);
}
#else
void forbid_access(void* /*data*/, size_t /*bytes*/) {}
void allow_access(void* /*data*/, size_t /*bytes*/) {}
#endif

}  // namespace

struct KeptBlocks::Block {
  void* data;
  size_t bytes;
  c10::DeleterFnPtr deleter;
  Size* size;
  bool is_kept = false;
  int64_t freed_at = 0;  // what handed_out_ was
  Links by_age;
  Links by_size;
};

// Of kept blocks, in the order in which they were freed.
struct KeptBlocks::Chain {
  Links Block::*links;
  Block* oldest = nullptr;
  Block* newest = nullptr;

  void add(Block& block) {
    block.*links = {.older = newest, .newer = nullptr};
    (newest != nullptr ? (newest->*links).newer : oldest) = &block;
    newest = &block;
  }
  void remove(Block& block) {
    const Links place = block.*links;
    (place.older != nullptr ? (place.older->*links).newer : oldest) = place.newer;
    (place.newer != nullptr ? (place.newer->*links).older : newest) = place.older;
  }
};

struct KeptBlocks::Size {
  int64_t blocks = 0;  // in use or kept
  Chain kept{.links = &Block::by_size};
};

// Blocks that are in no table any more. Their memory is given back when this goes, with no lock held.
class KeptBlocks::Freed {
 public:
  Freed() = default;
  Freed(const Freed&) = delete;
  Freed& operator=(const Freed&) = delete;
  ~Freed() {
    while (first_ != nullptr) {
      const std::unique_ptr<Block> block(std::exchange(first_, first_->by_age.newer));
      allow_access(block->data, block->bytes);
      block->deleter(block->data);
    }
  }

  void add(std::unique_ptr<Block> block) {
    bytes_ += static_cast<int64_t>(block->bytes);
    block->by_age.newer = first_;
    first_ = block.release();
  }
  int64_t bytes() const { return bytes_; }

 private:
  Block* first_ = nullptr;
  int64_t bytes_ = 0;
};

KeptBlocks::KeptBlocks() : kept_(new Chain{.links = &Block::by_age}) {
  ForkLocks::add_last(mutex_);
  add_cpu_deleter(&KeptBlocks::free);
}

KeptBlocks& KeptBlocks::get() {
  static auto* kept = new KeptBlocks;  // leaked: tensors with static lifetime are freed after main()
  return *kept;
}

void KeptBlocks::start() {
  map_large_blocks();
  has_started_.store(true, std::memory_order_relaxed);
}

bool KeptBlocks::keeps(size_t bytes) const {
  return has_started() && bytes >= kMappedFrom && !c10::memoryProfilingEnabled() &&
         !FLAGS_caffe2_cpu_allocator_do_zero_fill && !FLAGS_caffe2_cpu_allocator_do_junk_fill;
}

void KeptBlocks::keep(Block& block) {
  const auto bytes = static_cast<int64_t>(block.bytes);
  block.is_kept = true;
  block.freed_at = handed_out_;
  kept_->add(block);
  block.size->kept.add(block);
  counts_.in_use -= bytes;
  counts_.kept += bytes;
}

KeptBlocks::Block& KeptBlocks::take_from_kept(Block& block) {
  block.is_kept = false;
  kept_->remove(block);
  block.size->kept.remove(block);
  counts_.kept -= static_cast<int64_t>(block.bytes);
  return block;
}

// A block that is in use no more, and not kept.
void KeptBlocks::give_back_locked(Block& block, Freed& freed) {
  if (--block.size->blocks == 0) {
    sizes_.erase(block.bytes);
  }
  const auto found = blocks_.find(block.data);
  freed.add(std::move(found->second));
  blocks_.erase(found);
}

void KeptBlocks::give_back_surplus(Freed& freed) {
  while (Block* const oldest = kept_->oldest) {
    const int64_t all = counts_.in_use + counts_.kept;
    if (all <= counts_.most_in_use && handed_out_ - oldest->freed_at <= kPatience * all) {
      return;
    }
    give_back_locked(take_from_kept(*oldest), freed);
  }
}

c10::DataPtr KeptBlocks::take(size_t bytes) {
  const MutexLock lock(mutex_);
  const auto found = sizes_.find(bytes);
  if (found == sizes_.end() || found->second->kept.newest == nullptr) {
    return {};
  }
  Block& block = take_from_kept(*found->second->kept.newest);
  counts_.in_use += static_cast<int64_t>(bytes);
  counts_.most_in_use = std::max(counts_.most_in_use, counts_.in_use);
  handed_out_ += static_cast<int64_t>(bytes);
  ++counts_.taken;
  allow_access(block.data, block.bytes);
  return {block.data, block.data, &KeptBlocks::free, c10::kCPU};
}

bool KeptBlocks::has(size_t bytes) {
  const MutexLock lock(mutex_);
  const auto found = sizes_.find(bytes);
  return found != sizes_.end() && found->second->kept.newest != nullptr;
}

c10::DataPtr KeptBlocks::note(c10::DataPtr fresh, size_t bytes) {
  void* const data = fresh.get();
  if (data == nullptr || fresh.get_context() != data) {
    return fresh;  // nothing to free, or freed by what only its own deleter knows
  }
  Freed surplus;
  try {
    auto block = std::make_unique<Block>();
    block->data = data;
    block->bytes = bytes;
    block->deleter = fresh.get_deleter();
    const MutexLock lock(mutex_);
    auto size = sizes_.find(bytes);
    if (size == sizes_.end()) {
      size = sizes_.emplace(bytes, std::make_unique<Size>()).first;
    }
    block->size = size->second.get();
    blocks_[data] = std::move(block);
    ++size->second->blocks;
    counts_.in_use += static_cast<int64_t>(bytes);
    counts_.most_in_use = std::max(counts_.most_in_use, counts_.in_use);
    handed_out_ += static_cast<int64_t>(bytes);
    ++counts_.noted;
    give_back_surplus(surplus);
  } catch (const std::bad_alloc&) {
    return fresh;  // there is no memory for the table, and the block will not be kept
  }
  fresh.release_context();
  return {data, data, &KeptBlocks::free, c10::kCPU};
}

void KeptBlocks::free(void* data) {
  if (data == nullptr) {
    return;
  }
  KeptBlocks& kept = get();
  Freed freed;
  {
    const MutexLock lock(kept.mutex_);
    const auto found = kept.blocks_.find(data);
    if (found != kept.blocks_.end()) {
      Block& block = *found->second;
      if (kept.keeps(block.bytes)) {
        forbid_access(block.data, block.bytes);
        kept.keep(block);
        kept.give_back_surplus(freed);
      } else {
        kept.counts_.in_use -= static_cast<int64_t>(block.bytes);
        kept.give_back_locked(block, freed);
      }
      return;
    }
  }
  c10::GetDefaultCPUAllocator()->raw_deleter()(data);
}

int64_t KeptBlocks::give_back(int64_t bytes) {
  Freed freed;
  const MutexLock lock(mutex_);
  while (freed.bytes() < bytes && kept_->oldest != nullptr) {
    give_back_locked(take_from_kept(*kept_->oldest), freed);
  }
  return freed.bytes();
}

KeptBlocks::Counts KeptBlocks::counts() {
  const MutexLock lock(mutex_);
  return counts_;
}

}  // namespace ac2::internal

#include "benchmarks/caching/caching_allocator.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace ac2::benchmarks {

namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kUnit = 512;
constexpr int64_t kLargestSmall = kMiB;
constexpr int64_t kSmallSegment = 2 * kMiB;
constexpr int64_t kLargeSegment = 20 * kMiB;
constexpr int64_t kOwnSegmentFrom = 10 * kMiB;
constexpr int64_t kSegmentUnit = 2 * kMiB;
// Between the segments of one pool: they are never merged.
constexpr uint64_t kGap = uint64_t{1} << 40;

int64_t round_up(int64_t bytes, int64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

int64_t segment_bytes(int64_t size) {
  if (size <= kLargestSmall) {
    return kSmallSegment;
  }
  return size < kOwnSegmentFrom ? kLargeSegment : round_up(size, kSegmentUnit);
}

void add(CachingAllocator::Bytes& bytes, int64_t more) {
  bytes.current += more;
  bytes.peak = std::max(bytes.peak, bytes.current);
}

}  // namespace

struct CachingAllocator::Block {
  Pool* pool;
  Address address;
  int64_t size;
  int64_t requested = 0;  // 0: free
  // Neighbours in the segment.
  Block* before = nullptr;
  Block* after = nullptr;

  bool is_segment() const { return before == nullptr && after == nullptr; }
  bool is_free() const { return requested == 0; }
};

struct CachingAllocator::Pool {
  bool is_small = false;
  FreeBlocks free;
  Block* last = nullptr;  // of the segment that grows
};

bool CachingAllocator::BySize::operator()(const Block* a, const Block* b) const {
  return std::pair(a->size, a->address) < std::pair(b->size, b->address);
}

CachingAllocator::CachingAllocator(const Options& options)
    : options_(options), small_(std::make_unique<Pool>()), large_(std::make_unique<Pool>()), next_segment_(kGap) {
  small_->is_small = true;
}

CachingAllocator::~CachingAllocator() = default;

std::optional<CachingAllocator::Address> CachingAllocator::allocate(int64_t bytes) {
  if (bytes <= 0) {
    throw std::logic_error("an allocation must have bytes");
  }
  const int64_t size = round_up(bytes, kUnit);
  Pool& pool = size <= kLargestSmall ? *small_ : *large_;
  Block* block = take_free(pool, size);
  if (block == nullptr && options_.before_segment && options_.before_segment()) {
    block = take_free(pool, size);
  }
  if (block == nullptr) {
    block = options_.expandable_segments ? expand(pool, size) : reserve(pool, size);
  }
  if (block == nullptr && give_back_free_segments()) {
    ++retries_;
    block = reserve(pool, size);
  }
  if (block == nullptr) {
    return std::nullopt;
  }
  const int64_t remaining = block->size - size;
  if (pool.is_small || options_.expandable_segments ? remaining >= kUnit : remaining > kLargestSmall) {
    split(block, size);
  }
  block->requested = bytes;
  add(requested_, bytes);
  add(allocated_, block->size);
  return block->address;
}

void CachingAllocator::free(Address address) {
  const auto found = blocks_.find(address);
  if (found == blocks_.end() || found->second->is_free()) {
    throw std::logic_error("no block that is in use begins at this address");
  }
  Block* const block = found->second.get();
  add(requested_, -block->requested);
  add(allocated_, -block->size);
  block->requested = 0;
  merge(block, block->before);
  merge(block, block->after);
  block->pool->free.insert(block);
}

int64_t CachingAllocator::idle_bytes() const {
  int64_t bytes = 0;
  for (const Pool* pool : {small_.get(), large_.get()}) {
    for (const Block* block : pool->free) {
      bytes += block->is_segment() ? block->size : 0;
    }
  }
  return bytes;
}

std::vector<std::vector<CachingAllocator::Piece>> CachingAllocator::segments() const {
  std::vector<std::vector<Piece>> segments;
  for (const auto& [address, block] : blocks_) {
    if (block->before == nullptr) {
      segments.emplace_back();
    }
    segments.back().push_back({block->size, block->is_free()});
  }
  return segments;
}

CachingAllocator::Block* CachingAllocator::take_free(Pool& pool, int64_t size) {
  Block key{.pool = &pool, .address = 0, .size = size};
  auto found = pool.free.lower_bound(&key);
  if (found == pool.free.end()) {
    return nullptr;
  }
  // The end of a segment that can grow counts as larger than any other block.
  if (*found == pool.last && std::next(found) != pool.free.end()) {
    ++found;
  }
  Block* const block = *found;
  pool.free.erase(found);
  return block;
}

CachingAllocator::Block* CachingAllocator::reserve(Pool& pool, int64_t size) {
  const int64_t bytes = segment_bytes(size);
  if (bytes > options_.device_bytes - reserved_.current) {
    return nullptr;
  }
  add(reserved_, bytes);
  Block* const block = add_block(pool, next_segment_, bytes);
  next_segment_ += kGap;
  return block;
}

CachingAllocator::Block* CachingAllocator::expand(Pool& pool, int64_t size) {
  Block* const end = pool.last;
  const bool grows = end != nullptr && end->is_free();
  const int64_t bytes = round_up(size - (grows ? end->size : 0), pool.is_small ? kSmallSegment : kLargeSegment);
  add(reserved_, bytes);
  if (grows) {
    pool.free.erase(end);
    end->size += bytes;
    return end;
  }
  const Address address =
      end != nullptr ? end->address + end->size : std::exchange(next_segment_, next_segment_ + kGap);
  Block* const block = add_block(pool, address, bytes);
  block->before = end;
  if (end != nullptr) {
    end->after = block;
  }
  pool.last = block;
  return block;
}

bool CachingAllocator::give_back_free_segments() {
  bool any = false;
  for (Pool* pool : {small_.get(), large_.get()}) {
    for (auto it = pool->free.begin(); it != pool->free.end();) {
      Block* const block = *it;
      if (!block->is_segment()) {
        ++it;
        continue;
      }
      it = pool->free.erase(it);
      add(reserved_, -block->size);
      blocks_.erase(block->address);
      any = true;
    }
  }
  return any;
}

void CachingAllocator::split(Block* block, int64_t size) {
  Block* const rest = add_block(*block->pool, block->address + size, block->size - size);
  block->size = size;
  rest->before = block;
  rest->after = block->after;
  if (rest->after != nullptr) {
    rest->after->before = rest;
  }
  block->after = rest;
  if (block->pool->last == block) {
    block->pool->last = rest;
  }
  block->pool->free.insert(rest);
}

void CachingAllocator::merge(Block* block, Block* other) {
  if (other == nullptr || !other->is_free()) {
    return;
  }
  Pool& pool = *block->pool;
  pool.free.erase(other);
  Block* const first = other == block->before ? other : block;
  Block* const second = first == block ? other : block;
  const Address address = first->address;
  if (pool.last == second) {
    pool.last = block;
  }
  block->before = first->before;
  block->after = second->after;
  if (block->before != nullptr) {
    block->before->after = block;
  }
  if (block->after != nullptr) {
    block->after->before = block;
  }
  block->size += other->size;
  auto owned = blocks_.extract(block->address);
  blocks_.erase(other->address);
  block->address = owned.key() = address;
  blocks_.insert(std::move(owned));
}

CachingAllocator::Block* CachingAllocator::add_block(Pool& pool, Address address, int64_t size) {
  auto block = std::make_unique<Block>(Block{.pool = &pool, .address = address, .size = size});
  return (blocks_[address] = std::move(block)).get();
}

}  // namespace ac2::benchmarks

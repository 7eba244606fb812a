// A simulation of the allocator that LibTorch has for CUDA: what it reserves on the device, for what is asked of it.
//
//   CachingAllocator allocator;
//   const std::optional<CachingAllocator::Address> x = allocator.allocate(3 << 20);
//   allocator.free(*x);
//   allocator.reserved().peak   // 20 MiB
//
// Its rules and numbers are those of c10/cuda/CUDACachingAllocator.cpp and c10/core/AllocatorConfig.h of LibTorch 2.15,
// with the default settings, for one stream:
//
// - Sizes are rounded up to 512 bytes. Up to 1 MiB a block comes from the small pool, else from the large one.
// - The smallest free block of the pool that is large enough is taken, and of several the one with the lowest address.
//   The rest of it becomes a free block: in the small pool from 512 bytes on, in the large one above 1 MiB.
// - If there is none, `before_segment` is called, which may free blocks, as a FreeMemoryCallback may. If it returns
//   true, a free block is looked for once more.
// - If there is none then, a segment is reserved. It has 2 MiB in the small pool. In the large one it has 20 MiB for a
//   size of less than 10 MiB, else the size rounded up to 2 MiB.
// - If the device has no room for it, all segments that are wholly free are given back, and it is tried once more.
// - A block that is freed is merged with its free neighbours. No other block moves, and no segment is given back.
//
// With `expandable_segments` (PYTORCH_ALLOC_CONF=expandable_segments:True) each pool is one segment, which grows at its
// end by pages of 2 MiB (small) or 20 MiB (large). All that remains of a block becomes a free one. The device then has
// no limit here.
//
// A device hands out addresses of segments in an order of its own. Here each segment has a higher one than those
// before.
//
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

namespace ac2::benchmarks {

class CachingAllocator {
 public:
  using Address = uint64_t;

  struct Options {
    int64_t device_bytes = std::numeric_limits<int64_t>::max();
    bool expandable_segments = false;
    std::function<bool()> before_segment = {};
  };
  struct Bytes {
    int64_t current = 0;
    int64_t peak = 0;
  };
  struct Piece {
    int64_t bytes = 0;
    bool is_free = false;

    friend bool operator==(const Piece&, const Piece&) = default;
  };

  CachingAllocator() : CachingAllocator(Options()) {}
  explicit CachingAllocator(const Options& options);
  ~CachingAllocator();
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;

  // `bytes` is positive. Nothing if the device has no room.
  std::optional<Address> allocate(int64_t bytes);
  // Throws std::logic_error unless a block begins there that was allocated and not freed since.
  void free(Address address);

  // Gives back all segments that are wholly free.
  void empty_cache() { give_back_free_segments(); }
  void set_device_bytes(int64_t bytes) { options_.device_bytes = bytes; }

  // The bytes that callers asked for.
  const Bytes& requested() const { return requested_; }
  // The blocks that are in use, rounded up and with what was not split off.
  const Bytes& allocated() const { return allocated_; }
  // The segments.
  const Bytes& reserved() const { return reserved_; }
  // The bytes of the segments that are wholly free.
  int64_t idle_bytes() const;
  // How often segments were given back for want of room.
  int64_t retries() const { return retries_; }

  // All segments by address, each as its blocks.
  std::vector<std::vector<Piece>> segments() const;

 private:
  struct Pool;
  struct Block;
  struct BySize {
    bool operator()(const Block* a, const Block* b) const;
  };
  using FreeBlocks = std::set<Block*, BySize>;

  Block* take_free(Pool& pool, int64_t size);
  Block* reserve(Pool& pool, int64_t size);
  Block* expand(Pool& pool, int64_t size);
  bool give_back_free_segments();
  void split(Block* block, int64_t size);
  // Makes `block` take the place of `other` too if that is a free neighbour.
  void merge(Block* block, Block* other);
  Block* add_block(Pool& pool, Address address, int64_t size);

  Options options_;
  std::unique_ptr<Pool> small_, large_;
  std::map<Address, std::unique_ptr<Block>> blocks_;
  Address next_segment_;
  Bytes requested_, allocated_, reserved_;
  int64_t retries_ = 0;
};

}  // namespace ac2::benchmarks

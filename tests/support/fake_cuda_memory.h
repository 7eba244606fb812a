// Memory of the fake accelerator, given out as CUDA's caching allocator would: in blocks of segments, up to a limit or
// a fraction of it, and with whatever_fits() asked before each segment.
//
//   const FakeCudaMemory memory({.limit = int64_t{8} << 30, .scale = 1024});   // each byte counts as 1024
//   … steps on FakeAccelerator::install().device() …
//
// Threads: those of the accelerator. One at a time lives, and no block that it gave out outlives it.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <map>

#include "ac2/internal/allocator/accelerator_room.h"
#include "benchmarks/caching/caching_allocator.h"
#include "tests/support/fake_accelerator.h"

namespace ac2::test {

class FakeCudaMemory final : public FakeAccelerator::Arena {
 public:
  struct Options {
    int64_t limit = 0;
    int64_t scale = 1;
  };
  explicit FakeCudaMemory(const Options& options);
  ~FakeCudaMemory() override;
  FakeCudaMemory(const FakeCudaMemory&) = delete;
  FakeCudaMemory& operator=(const FakeCudaMemory&) = delete;

  bool take(const void* data, int64_t bytes) override;
  void give_back(const void* data) override;
  const benchmarks::CachingAllocator& allocator() const { return allocator_; }
  void empty_cache() {
    ++emptied_;
    allocator_.empty_cache();
  }
  // How often the cache was emptied by a call from outside.
  int64_t emptied() const { return emptied_; }
  // The device has no more.
  void set_limit(int64_t limit);
  // The allocator may have no more of the device. From 0 to 1.
  void set_fraction(double fraction);
  double fraction() const { return fraction_; }
  // In bytes of the accelerator, as all that ac2 is told.
  internal::AcceleratorRoom room() const;

 private:
  int64_t allowed() const { return static_cast<int64_t>(fraction_ * static_cast<double>(options_.limit)); }

  Options options_;
  benchmarks::CachingAllocator allocator_;
  std::map<const void*, benchmarks::CachingAllocator::Address> blocks_;
  int64_t emptied_ = 0;
  double fraction_ = 1;
};

}  // namespace ac2::test

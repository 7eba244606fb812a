// Records what a program's tensors allocate and free on the CPU, as a CachingAllocator can be asked about it.
//
//   auto& recorder = AllocationRecorder::install();   // first thing in main()
//   const AllocationEvents events = recorder.during([&] { model(x).sum().backward(); });
//
// Threads: any, as with ac2::testing::CountingAllocator, which must not be installed too. Blocks of several threads
// come in the order in which they were allocated.
#pragma once

#include <c10/core/Allocator.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>

#include "benchmarks/caching/allocation_events.h"

namespace ac2::benchmarks {

class AllocationRecorder final : public c10::Allocator {
 public:
  // LibTorch's CPU allocator from the first call to the end of the process.
  static AllocationRecorder& install();

  // The events between start() and stop(). What is there at start() comes first, in the order in which it was
  // allocated, as if it were allocated then.
  void start();
  AllocationEvents stop();
  AllocationEvents during(const std::function<void()>& fn);

  c10::DataPtr allocate(size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override;
  void copy_data(void* dest, const void* src, std::size_t count) const override;

 private:
  AllocationRecorder() = default;
  static void deallocate(void* data);

  std::mutex mutex_;
  uint32_t next_ = 0;
  std::map<uint32_t, int64_t> living_;  // bytes by block
  bool records_ = false;
  AllocationEvents events_;
};

}  // namespace ac2::benchmarks

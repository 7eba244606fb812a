// LibTorch's CPU allocator, whose memory is full of garbage, other garbage each time: what reads memory before anybody
// wrote it differs from itself.
#pragma once

#include <c10/core/Allocator.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace ac2::test::sweep {

class FillingAllocator final : public c10::Allocator {
 public:
  // Becomes the CPU allocator on the first call, and stays it. Not while other threads allocate tensors.
  static void install();

  c10::DataPtr allocate(size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override;
  void copy_data(void* dest, const void* src, std::size_t count) const override;

 private:
  std::atomic<uint64_t> blocks_{0};
};

}  // namespace ac2::test::sweep

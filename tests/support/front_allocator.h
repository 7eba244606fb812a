// The common part of the tests' CPU allocators: each stands in front of another, and only its allocate() is its own.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <cstddef>

namespace ac2::test {

// Behind is another c10::Allocator, whose deleters free what is allocated.
template <class Behind>
class FrontAllocator : public c10::Allocator {
 public:
  c10::DeleterFnPtr raw_deleter() const override { return behind_.raw_deleter(); }
  void copy_data(void* dest, const void* src, std::size_t count) const override { behind_.copy_data(dest, src, count); }

 protected:
  explicit FrontAllocator(Behind& behind) : behind_(behind) {}

  Behind& behind_;
};

// LibTorch's CPU allocator from the first call to the end of the process.
template <class T>
T& installed_allocator() {
  // Leaked: tensors with static lifetime are freed after main().
  static T* const installed = [] {
    auto* allocator = new T;
    c10::SetCPUAllocator(allocator, /*priority=*/255);
    return allocator;
  }();
  return *installed;
}

}  // namespace ac2::test

// A CPU allocator that can be told to run out of memory.
#pragma once

#include <c10/core/Allocator.h>

#include <cstddef>
#include <cstdint>

namespace ac2::test {

// One thread at a time.
class FailingAllocator final : public c10::Allocator {
 public:
  // Stands in front of LibTorch's CPU allocator from the first call to the end of the process.
  static FailingAllocator& install();

  // The allocation after `count` more fails, as LibTorch's own does; those after it succeed again.
  void fail_after(int64_t count) { left_ = count; }
  void never_fail() { left_ = -1; }
  // Whether that has happened since fail_after().
  bool has_failed() const { return left_ == kFailed; }

  c10::DataPtr allocate(size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override { return behind_->raw_deleter(); }
  void copy_data(void* dest, const void* src, std::size_t count) const override {
    behind_->copy_data(dest, src, count);
  }

 private:
  static constexpr int64_t kFailed = -2;

  FailingAllocator() = default;

  c10::Allocator* behind_ = nullptr;
  int64_t left_ = -1;
};

}  // namespace ac2::test

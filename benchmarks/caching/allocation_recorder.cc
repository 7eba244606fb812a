#include "benchmarks/caching/allocation_recorder.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/alignment.h>
#include <c10/core/impl/alloc_cpu.h>
#include <c10/util/Exception.h>
#include <c10/util/ScopeExit.h>

#include <cstring>
#include <utility>

namespace ac2::benchmarks {
namespace {

// A block's number stands in front of it, as its size does in CountingAllocator, and for the same reasons.
constexpr size_t kHeader = c10::gAlignment;

// Never destroyed: tensors with static lifetime are freed after main().
AllocationRecorder* instance = nullptr;

}  // namespace

AllocationRecorder& AllocationRecorder::install() {
  static AllocationRecorder& installed = []() -> AllocationRecorder& {
    instance = new AllocationRecorder;
    c10::SetCPUAllocator(instance, /*priority=*/255);
    return *instance;
  }();
  return installed;
}

void AllocationRecorder::start() {
  const std::lock_guard<std::mutex> lock(mutex_);
  TORCH_CHECK(!records_, "Allocations are being recorded already.");
  records_ = true;
  events_.clear();
  for (const auto& [block, bytes] : living_) events_.push_back({block, bytes});
}

AllocationEvents AllocationRecorder::stop() {
  const std::lock_guard<std::mutex> lock(mutex_);
  TORCH_CHECK(records_, "Allocations are not being recorded.");
  records_ = false;
  return std::exchange(events_, {});
}

AllocationEvents AllocationRecorder::during(const std::function<void()>& fn) {
  start();
  auto stopped = c10::make_scope_exit([this] { stop(); });
  fn();
  stopped.release();
  return stop();
}

c10::DataPtr AllocationRecorder::allocate(size_t bytes) {
  const c10::Device cpu(c10::DeviceType::CPU);
  if (bytes == 0) return {nullptr, nullptr, &AllocationRecorder::deallocate, cpu};
  char* const start = static_cast<char*>(c10::alloc_cpu(kHeader + bytes));
  void* const data = start + kHeader;
  const std::lock_guard<std::mutex> lock(mutex_);
  const uint32_t block = next_++;
  std::memcpy(start, &block, sizeof block);
  living_[block] = static_cast<int64_t>(bytes);
  if (records_) events_.push_back({block, static_cast<int64_t>(bytes)});
  return {data, data, &AllocationRecorder::deallocate, cpu};
}

void AllocationRecorder::deallocate(void* data) {
  if (data == nullptr) return;
  char* const start = static_cast<char*>(data) - kHeader;
  uint32_t block = 0;
  std::memcpy(&block, start, sizeof block);
  {
    const std::lock_guard<std::mutex> lock(instance->mutex_);
    instance->living_.erase(block);
    if (instance->records_) instance->events_.push_back({block, 0});
  }
  c10::free_cpu(start);
}

c10::DeleterFnPtr AllocationRecorder::raw_deleter() const {
  return &AllocationRecorder::deallocate;
}

void AllocationRecorder::copy_data(void* dest, const void* src, std::size_t count) const {
  default_copy_data(dest, src, count);
}

}  // namespace ac2::benchmarks

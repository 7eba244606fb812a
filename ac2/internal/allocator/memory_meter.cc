#include "ac2/internal/allocator/memory_meter.h"

#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Exception.h>
#include <torch/version.h>

#include <atomic>

#include "ac2/internal/allocator/counted_memory.h"
#include "ac2/internal/allocator/retrying_allocator.h"

namespace ac2::internal {

namespace {

std::atomic<bool> there_is_one{false};

class CpuMeter final : public MemoryMeter {
 public:
  CpuMeter() : MemoryMeter(c10::kCPU) {
    RetryingAllocator::put_in_front();
    CountedMemory::get().start_measuring();
  }
  ~CpuMeter() override { CountedMemory::get().stop_measuring(); }

  Reading read() override {
    CountedMemory& memory = CountedMemory::get();
    const CountedMemory::Measured measured = memory.measured();
    return {.now = memory.bytes(), .highest = measured.highest, .allocated = measured.allocated};
  }
  bool has_counted(const void* data) const override { return CountedMemory::get().has_counted(data); }
};

#if TORCH_VERSION_MINOR >= 9

class AcceleratorMeter final : public MemoryMeter {
 public:
  AcceleratorMeter(c10::Device device, c10::DeviceAllocator& allocator) : MemoryMeter(device), allocator_(allocator) {
    read();
  }

  Reading read() override {
    constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    const auto stat = allocator_.getDeviceStats(device().index()).allocated_bytes[kAll];
    allocator_.resetPeakStats(device().index());
    const int64_t before = allocated_;
    allocated_ = stat.allocated;
    // An allocator that has memory and never allocated any does not count that.
    const bool tells = stat.allocated >= stat.current;
    return {.now = stat.current, .highest = stat.peak, .allocated = tells ? stat.allocated - before : kUnknown};
  }
  bool has_counted(const void* /*data*/) const override { return true; }

 private:
  c10::DeviceAllocator& allocator_;
  int64_t allocated_ = 0;
};

std::unique_ptr<MemoryMeter> meter_of_accelerator(c10::Device device) {
  if (!c10::impl::hasDeviceGuardImpl(device.type())) {
    return nullptr;
  }
  try {
    if (!device.has_index()) {
      device.set_index(c10::impl::getDeviceGuardImpl(device.type())->getDevice().index());
    }
    auto* const allocator = dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(device.type()));
    if (allocator == nullptr || !allocator->initialized()) {
      return nullptr;
    }
    return std::make_unique<AcceleratorMeter>(device, *allocator);
  } catch (const c10::Error&) {
    return nullptr;  // A device need not have an allocator, nor an allocator statistics.
  }
}

#else

std::unique_ptr<MemoryMeter> meter_of_accelerator(c10::Device /*device*/) {
  return nullptr;
}

#endif

}  // namespace

std::unique_ptr<MemoryMeter> MemoryMeter::of(c10::Device device) {
  if (there_is_one.exchange(true)) {
    return nullptr;
  }
  std::unique_ptr<MemoryMeter> meter;
  if (device.is_cpu()) {
    meter = std::make_unique<CpuMeter>();
  } else if (!device.is_meta()) {
    meter = meter_of_accelerator(device);
  }
  if (meter == nullptr) {
    there_is_one.store(false);
  }
  return meter;
}

MemoryMeter::~MemoryMeter() {
  there_is_one.store(false);
}

}  // namespace ac2::internal

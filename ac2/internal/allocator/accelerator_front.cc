#include "ac2/internal/allocator/accelerator_front.h"

#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Exception.h>
#include <torch/version.h>

#include <atomic>
#include <utility>

#include "ac2/internal/allocator/allocate_again.h"
#include "ac2/internal/libtorch/out_of_memory.h"
#include "ac2/internal/locks/fork_locks.h"
#include "ac2/internal/locks/mutex.h"

namespace ac2::internal::accelerator_front {

namespace {

constexpr c10::DeviceType kType = c10::DeviceType::PrivateUse1;

// The state that all fronts of the process share.
struct FrontState {
  Mutex mutex;
  KeptLimit limit;
  std::atomic<const c10::Allocator*> front{nullptr};
  // Relaxed: a thread that has computed on a device has allocated there itself, or was handed the tensor.
  std::atomic<bool> has_allocated{false};

  static FrontState& get() {
    static auto* shared = [] {
      auto* made = new FrontState;  // leaked, as the fronts: tensors with static lifetime are freed after main()
      ForkLocks::add_last(made->mutex);
      return made;
    }();
    return *shared;
  }
};

#if TORCH_VERSION_MINOR >= 9

// From 2.10 on.
template <class Allocator>
std::pair<size_t, size_t> memory_info_of(Allocator& allocator, c10::DeviceIndex device) {
  if constexpr (requires { allocator.getMemoryInfo(device); }) {
    return allocator.getMemoryInfo(device);
  } else {
    TORCH_CHECK_NOT_IMPLEMENTED(false, "getMemoryInfo is not implemented for this allocator.");
  }
}

class Front final : public c10::DeviceAllocator {
 public:
  explicit Front(c10::DeviceAllocator& behind) : behind_(behind) {}

  c10::DataPtr allocate(size_t bytes) override;
  bool is_simple_data_ptr(const c10::DataPtr& data) const override { return behind_.is_simple_data_ptr(data); }
  c10::DeleterFnPtr raw_deleter() const override { return behind_.raw_deleter(); }
  void copy_data(void* dest, const void* src, std::size_t count) const override { behind_.copy_data(dest, src, count); }

  bool initialized() override { return behind_.initialized(); }
  void emptyCache(c10::MempoolId_t mempool) override { behind_.emptyCache(mempool); }
  void recordStream(const c10::DataPtr& data, c10::Stream stream) override { behind_.recordStream(data, stream); }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    return behind_.getDeviceStats(device);
  }
  void resetAccumulatedStats(c10::DeviceIndex device) override { behind_.resetAccumulatedStats(device); }
  void resetPeakStats(c10::DeviceIndex device) override { behind_.resetPeakStats(device); }
  // Overrides where there is such a function.
  virtual std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) { return memory_info_of(behind_, device); }

 private:
  int64_t allocated_bytes(c10::DeviceIndex device) {
    constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    return behind_.getDeviceStats(device).allocated_bytes[kAll].current;
  }

  c10::DeviceAllocator& behind_;
};

c10::DataPtr Front::allocate(size_t bytes) {
  FrontState& shared = FrontState::get();
  // Of several fronts one keeps the limit.
  if (bytes == 0 || shared.front.load(std::memory_order_acquire) != this) {
    return behind_.allocate(bytes);
  }
  const c10::Device device = c10::impl::getDeviceGuardImpl(kType)->getDevice();
  shared.has_allocated.store(true, std::memory_order_relaxed);
  if (shared.limit.is_on()) {
    // Caching allocators count a block as a multiple of 512 bytes.
    constexpr int64_t kBlock = 512;
    const int64_t wanted = (static_cast<int64_t>(bytes) + kBlock - 1) / kBlock * kBlock;
    shared.limit.keep(device, [&] { return allocated_bytes(device.index()) + wanted; });
  }
  try {
    return behind_.allocate(bytes);
  } catch (const c10::Error& error) {
    if (!is_out_of_memory(error)) {
      throw;
    }
  }
  return allocate_again(device, bytes, [&] { return behind_.allocate(bytes); });
}

c10::Allocator* registered_allocator() {
  if (!c10::impl::hasDeviceGuardImpl(kType)) {
    return nullptr;
  }
  try {
    return c10::GetAllocator(kType);
  } catch (const c10::Error&) {
    return nullptr;  // A device need not have one.
  }
}

#endif

}  // namespace

void put_in_front() {
#if TORCH_VERSION_MINOR >= 9
  FrontState& shared = FrontState::get();
  const MutexLock lock(shared.mutex);
  c10::Allocator* const there = registered_allocator();
  auto* const behind = dynamic_cast<c10::DeviceAllocator*>(there);
  if (behind == nullptr || there == shared.front.load(std::memory_order_relaxed)) {
    return;
  }
  auto* front = new Front(*behind);
  constexpr uint8_t kHighestPriority = 255;
  // As in RetryingAllocator::put_in_front().
  std::atomic_thread_fence(std::memory_order_release);
  c10::SetAllocator(kType, front, kHighestPriority);
  // Last. Pairs with the acquire of allocate().
  shared.front.store(front, std::memory_order_release);
#endif
}

void start(const KeptLimit::Keeper& keeper) {
  FrontState::get().limit.start(keeper);
}

bool has_passed(c10::Device device) {
  return device.type() == kType && FrontState::get().has_allocated.load(std::memory_order_relaxed);
}

}  // namespace ac2::internal::accelerator_front

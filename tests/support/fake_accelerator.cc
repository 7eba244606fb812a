#include "tests/support/fake_accelerator.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Exception.h>
#include <torch/version.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

namespace ac2::test {

namespace {

using Lock = std::lock_guard<std::recursive_mutex>;
using Kind = FakeMemory::Kind;

FakeAccelerator::State& state() {
  return FakeAccelerator::install().state();
}

void free_memory(void* data) {
  if (data == nullptr) return;
  const Lock lock(state().mutex);
  if (state().arena != nullptr) state().arena->give_back(data);
  state().memory.free(data);
}

c10::DataPtr allocate_memory(Kind kind, size_t bytes, c10::Device device) {
  void* data = nullptr;
  if (bytes > 0) {
    const Lock lock(state().mutex);
    FakeAccelerator::Arena* const arena = kind == Kind::kDevice ? state().arena : nullptr;
    const auto allocate = [&]() -> void* {
      void* block = state().memory.allocate(kind, bytes, FakeAccelerator::current_stream());
      if (block == nullptr || arena == nullptr || arena->take(block, static_cast<int64_t>(bytes))) return block;
      state().memory.free(block);
      return nullptr;
    };
    data = allocate();
    while (data == nullptr && kind == Kind::kDevice) {
      ++state().refused_allocations;
      if (!state().free_memory || !state().free_memory(static_cast<int64_t>(bytes))) break;
      data = allocate();
    }
    TORCH_CHECK_WITH(OutOfMemoryError, data != nullptr, "The fake accelerator has no ", bytes, " bytes of ",
                     kind == Kind::kPinned ? "pinned" : "device", " memory left: out of memory.");
  }
  return {data, data, &free_memory, device};
}

struct DeviceMemory final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    return allocate_memory(Kind::kDevice, bytes, FakeAccelerator::install().device());
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_memory; }
  void copy_data(void* dest, const void* src, std::size_t count) const override { std::memcpy(dest, src, count); }
};

#if TORCH_VERSION_MINOR >= 9
struct DeviceMemoryWithStatistics final : c10::DeviceAllocator {
  c10::DataPtr allocate(size_t bytes) override { return plain.allocate(bytes); }
  c10::DeleterFnPtr raw_deleter() const override { return plain.raw_deleter(); }
  void copy_data(void* dest, const void* src, std::size_t count) const override { plain.copy_data(dest, src, count); }

  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr& data, c10::Stream stream) override {
    const Lock lock(state().mutex);
    state().memory.record_stream(data.get(), static_cast<int>(stream.id()));
  }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex) override {
    constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    c10::CachingDeviceAllocator::DeviceStats stats;
    const int64_t bytes = FakeAccelerator::install().device_bytes();
    for (auto* of : {&stats.allocated_bytes, &stats.reserved_bytes, &stats.active_bytes, &stats.requested_bytes}) {
      (*of)[kAll].current = bytes;
      (*of)[kAll].peak = FakeAccelerator::install().peak_device_bytes();
      (*of)[kAll].allocated = FakeAccelerator::install().allocated_device_bytes();
    }
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex) override { FakeAccelerator::install().reset_peaks(); }

  DeviceMemory plain;
};
#endif

struct PinnedMemory final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override { return allocate_memory(Kind::kPinned, bytes, c10::kCPU); }
  c10::DeleterFnPtr raw_deleter() const override { return &free_memory; }
  void copy_data(void* dest, const void* src, std::size_t count) const override { std::memcpy(dest, src, count); }
};

// Leaked, as all that c10 keeps pointers to.
DeviceMemory& device_memory() {
  static auto* memory = new DeviceMemory;
  return *memory;
}

c10::Allocator& device_memory_with_statistics() {
#if TORCH_VERSION_MINOR >= 9
  static auto* memory = new DeviceMemoryWithStatistics;
  return *memory;
#else
  TORCH_CHECK(false, "LibTorch has no DeviceAllocator before 2.9.");
#endif
}

PinnedMemory& pinned_memory() {
  static auto* memory = new PinnedMemory;
  return *memory;
}

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return c10::DeviceType::PrivateUse1; }
  c10::Device exchangeDevice(c10::Device) const override { return getDevice(); }
  c10::Device getDevice() const override { return FakeAccelerator::install().device(); }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }

  c10::Stream getStream(c10::Device) const override { return stream(FakeAccelerator::current_stream()); }
  c10::Stream getDefaultStream(c10::Device) const override { return stream(0); }
  c10::Stream getStreamFromGlobalPool(c10::Device, bool) const override {
    const Lock lock(state().mutex);
    state().next_stream = state().next_stream % (kFakeStreams - 1) + 1;
    return stream(state().next_stream);
  }
  c10::Stream getNewStream(c10::Device device, int) const override { return getStreamFromGlobalPool(device, false); }
  c10::Stream exchangeStream(c10::Stream next) const override {
    return stream(std::exchange(FakeAccelerator::current_stream(), static_cast<int>(next.id())));
  }
  bool queryStream(const c10::Stream& stream) const override {
    const Lock lock(state().mutex);
    return state().streams.is_idle(static_cast<int>(stream.id()));
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    const Lock lock(state().mutex);
    ++state().synchronisations;
    state().streams.synchronize(static_cast<int>(stream.id()));
  }
  void synchronizeDevice(const c10::DeviceIndex) const override {
    const Lock lock(state().mutex);
    ++state().synchronisations;
    FakeAccelerator::install().finish();
  }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    const Lock lock(state().mutex);
    state().memory.record_stream(data.get(), static_cast<int>(stream.id()));
  }

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex, const c10::EventFlag) const override {
    const Lock lock(state().mutex);
    if (*event == nullptr) {
      *event = new FakeEvent;
      ++state().live_events;
    }
    state().streams.record(*static_cast<FakeEvent*>(*event), static_cast<int>(stream.id()));
  }
  void block(void* event, const c10::Stream& stream) const override {
    const Lock lock(state().mutex);
    state().streams.wait(*static_cast<FakeEvent*>(event), static_cast<int>(stream.id()));
  }
  bool queryEvent(void* event) const override {
    const Lock lock(state().mutex);
    return state().streams.has_happened(*static_cast<FakeEvent*>(event));
  }
  void synchronizeEvent(void* event) const override {
    const Lock lock(state().mutex);
    ++state().synchronisations;
    state().streams.synchronize(*static_cast<FakeEvent*>(event));
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    const Lock lock(state().mutex);
    delete static_cast<FakeEvent*>(event);
    --state().live_events;
  }
  double elapsedTime(void* event1, void* event2, const c10::DeviceIndex) const override {
    const Lock lock(state().mutex);
    return static_cast<FakeEvent*>(event2)->milliseconds - static_cast<FakeEvent*>(event1)->milliseconds;
  }

 private:
  static c10::Stream stream(int id) { return FakeAccelerator::install().stream(id); }
};

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  void setCurrentDevice(c10::DeviceIndex) const override {}
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex) const override { return 0; }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex) const override { return 0; }
  at::Device getDeviceFromPtr(void*) const override { return FakeAccelerator::install().device(); }
  bool isPinnedPtr(const void* data) const override {
    const Lock lock(state().mutex);
    return state().memory.is_pinned(data);
  }
  c10::Allocator* getPinnedMemoryAllocator() const override {
    const Lock lock(state().mutex);
    // As the interface's own, where a device has not implemented it.
    TORCH_CHECK(state().has_pinned_memory, "The fake accelerator has no pinned memory.");
    return &pinned_memory();
  }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override {
    return at::detail::getDefaultCPUGenerator();
  }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    c10::DataPtr data = c10::GetAllocator(c10::DeviceType::PrivateUse1)->allocate(bytes);
    if (bytes > 0 && storage.nbytes() > 0) {
      const Lock lock(state().mutex);
      const int stream = FakeAccelerator::current_stream();
      state().streams.catch_up(stream);
      state().streams.next_time(stream);
      state().memory.read(storage.data(), stream);
      state().memory.write(data.get(), stream);
      std::memcpy(data.get(), storage.data(), std::min(bytes, storage.nbytes()));
    }
    storage.set_data_ptr_noswap(std::move(data));
    storage.set_nbytes(bytes);
  }
};

}  // namespace

int& FakeAccelerator::current_stream() {
  static thread_local int stream = 0;
  return stream;
}

bool FakeAccelerator::can_tell_statistics() {
  return TORCH_VERSION_MINOR >= 9;
}

FakeAccelerator& FakeAccelerator::install(bool tells_statistics) {
  // Leaked: tensors with static lifetime are freed after main().
  static auto* fake = [&] {
    auto* made = new FakeAccelerator;
    made->register_all(tells_statistics);
    return made;
  }();
  return *fake;
}

void FakeAccelerator::register_all(bool tells_statistics) {
  c10::register_privateuse1_backend("fake");
  c10::SetAllocator(c10::DeviceType::PrivateUse1,
                    tells_statistics ? &device_memory_with_statistics() : &device_memory());
  const c10::impl::DeviceGuardImplRegistrar guard(c10::DeviceType::PrivateUse1, new Guard);
  at::RegisterPrivateUse1HooksInterface(new Hooks);
  register_fake_kernels();
  register_fake_network_kernels();
}

void FakeAccelerator::finish() {
  const Lock lock(state_.mutex);
  for (int stream = 0; stream < kFakeStreams; ++stream) {
    state_.streams.synchronize(stream);
  }
  state_.memory.release_deferred();
}

void FakeAccelerator::restart(uint64_t seed) {
  const Lock lock(state_.mutex);
  finish();
  state_.streams.set_seed(seed);
  state_.memory.take_errors();
  state_.memory.reset_peaks();
  state_.memory.limit_pinned(std::numeric_limits<int64_t>::max());
  state_.memory.last_allocation_after(-1);
  state_.synchronisations = 0;
  state_.refused_allocations = 0;
  state_.milliseconds_per_byte = 0;
}

void FakeAccelerator::copies_take(double milliseconds_per_byte) {
  const Lock lock(state_.mutex);
  state_.milliseconds_per_byte = milliseconds_per_byte;
}

std::vector<std::string> FakeAccelerator::take_errors() {
  const Lock lock(state_.mutex);
  return state_.memory.take_errors();
}

void FakeAccelerator::host_reads(const void* data) {
  const Lock lock(state_.mutex);
  state_.memory.host_reads(data);
}

int64_t FakeAccelerator::device_bytes() {
  const Lock lock(state_.mutex);
  return state_.memory.bytes(Kind::kDevice);
}

int64_t FakeAccelerator::allocated_device_bytes() {
  const Lock lock(state_.mutex);
  return state_.memory.allocated_bytes(Kind::kDevice);
}

int64_t FakeAccelerator::peak_device_bytes() {
  const Lock lock(state_.mutex);
  return state_.memory.peak_bytes(Kind::kDevice);
}

int64_t FakeAccelerator::pinned_bytes() {
  const Lock lock(state_.mutex);
  return state_.memory.bytes(Kind::kPinned);
}

int64_t FakeAccelerator::peak_pinned_bytes() {
  const Lock lock(state_.mutex);
  return state_.memory.peak_bytes(Kind::kPinned);
}

void FakeAccelerator::reset_peaks() {
  const Lock lock(state_.mutex);
  state_.memory.reset_peaks();
}

void FakeAccelerator::limit_pinned(int64_t bytes) {
  const Lock lock(state_.mutex);
  state_.memory.limit_pinned(bytes);
}

void FakeAccelerator::fail_after(int64_t count) {
  const Lock lock(state_.mutex);
  state_.memory.fail_after(count);
}

void FakeAccelerator::last_allocation_after(int64_t count) {
  const Lock lock(state_.mutex);
  state_.memory.last_allocation_after(count);
}

void FakeAccelerator::limit_device(int64_t bytes) {
  const Lock lock(state_.mutex);
  state_.memory.limit_device(bytes);
}

void FakeAccelerator::set_free_memory(FreeMemory free_memory) {
  const Lock lock(state_.mutex);
  state_.free_memory = std::move(free_memory);
}

void FakeAccelerator::set_arena(Arena* arena) {
  const Lock lock(state_.mutex);
  state_.arena = arena;
}

int64_t FakeAccelerator::refused_allocations() {
  const Lock lock(state_.mutex);
  return state_.refused_allocations;
}

int64_t FakeAccelerator::device_allocations() {
  const Lock lock(state_.mutex);
  return state_.memory.device_allocations();
}

void FakeAccelerator::has_pinned_memory(bool has) {
  const Lock lock(state_.mutex);
  state_.has_pinned_memory = has;
}

int64_t FakeAccelerator::pending_copies() {
  const Lock lock(state_.mutex);
  return state_.streams.pending();
}

int64_t FakeAccelerator::live_events() {
  const Lock lock(state_.mutex);
  return state_.live_events;
}

int64_t FakeAccelerator::synchronisations() {
  const Lock lock(state_.mutex);
  return state_.synchronisations;
}

}  // namespace ac2::test

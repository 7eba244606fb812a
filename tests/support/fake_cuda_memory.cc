#include "tests/support/fake_cuda_memory.h"

#include <algorithm>

#include "ac2/internal/allocator/memory_fraction.h"

namespace ac2::test {

namespace {

FakeCudaMemory* living = nullptr;

constexpr internal::MemoryFractionSource kFractions = {
    .type = c10::DeviceType::PrivateUse1,
    .get = [](c10::DeviceIndex) { return living->fraction(); },
    .set = [](c10::DeviceIndex, double fraction) { living->set_fraction(fraction); },
    .set_later = [](c10::DeviceIndex, double fraction) { living->set_fraction(fraction); }};

constexpr internal::AcceleratorAllocator kAllocator = {
    .room_of = [](c10::DeviceIndex) -> std::optional<internal::AcceleratorRoom> { return living->room(); },
    .give_back_idle = [] { living->empty_cache(); }};

}  // namespace

FakeCudaMemory::FakeCudaMemory(const Options& options)
    : options_(options), allocator_({.device_bytes = options.limit, .before_segment = [] {
                                       return internal::make_room_on(FakeAccelerator::install().device());
                                     }}) {
  living = this;
  FakeAccelerator::install().set_arena(this);
  internal::set_accelerator_allocator(&kAllocator);
  internal::set_memory_fraction_source(&kFractions);
}

FakeCudaMemory::~FakeCudaMemory() {
  internal::set_memory_fraction_source(nullptr);
  internal::set_accelerator_allocator(nullptr);
  FakeAccelerator::install().set_arena(nullptr);
  living = nullptr;
}

bool FakeCudaMemory::take(const void* data, int64_t bytes) {
  const auto address = allocator_.allocate(bytes * options_.scale);
  if (address) blocks_.emplace(data, *address);
  return address.has_value();
}

void FakeCudaMemory::give_back(const void* data) {
  if (const auto found = blocks_.find(data); found != blocks_.end()) {
    allocator_.free(found->second);
    blocks_.erase(found);
  }
}

void FakeCudaMemory::set_limit(int64_t limit) {
  options_.limit = limit;
  set_fraction(fraction_);
}

void FakeCudaMemory::set_fraction(double fraction) {
  fraction_ = fraction;
  allocator_.set_device_bytes(allowed());
}

internal::AcceleratorRoom FakeCudaMemory::room() const {
  const int64_t reserved = allocator_.reserved().current;
  return {.total = options_.limit / options_.scale,
          .limit = allowed() / options_.scale,
          .reserved = reserved / options_.scale,
          .untouched = std::max<int64_t>((allowed() - reserved) / options_.scale, 0),
          .idle = allocator_.idle_bytes() / options_.scale};
}

}  // namespace ac2::test

#include "tests/support/fake_cuda_memory.h"

namespace ac2::test {

namespace {

FakeCudaMemory* living = nullptr;

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
}

FakeCudaMemory::~FakeCudaMemory() {
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
  allocator_.set_device_bytes(limit);
}

internal::AcceleratorRoom FakeCudaMemory::room() const {
  const int64_t reserved = allocator_.reserved().current;
  return {.limit = options_.limit / options_.scale,
          .reserved = reserved / options_.scale,
          .untouched = (options_.limit - reserved) / options_.scale,
          .idle = allocator_.idle_bytes() / options_.scale};
}

}  // namespace ac2::test

#include "examples/mesh/meta_memory.h"

namespace gpt {
namespace {

// Never destroyed: tensors with static lifetime are freed after main().
MetaMemory* instance = nullptr;

}  // namespace

MetaMemory& MetaMemory::install() {
  static MetaMemory& installed = []() -> MetaMemory& {
    instance = new MetaMemory;
    c10::SetAllocator(c10::DeviceType::Meta, instance, /*priority=*/255);
    return *instance;
  }();
  return installed;
}

c10::DataPtr MetaMemory::allocate(size_t bytes) {
  const auto size = static_cast<int64_t>(bytes);
  const int64_t now = current_ += size;
  int64_t peak = peak_;
  while (peak < now && !peak_.compare_exchange_weak(peak, now)) {
  }
  return {nullptr, new int64_t(size), &MetaMemory::deallocate, c10::Device(c10::DeviceType::Meta)};
}

void MetaMemory::deallocate(void* block) {
  const auto* const size = static_cast<const int64_t*>(block);
  instance->current_ -= *size;
  delete size;
}

void MetaMemory::copy_data(void*, const void*, std::size_t) const {}

}  // namespace gpt

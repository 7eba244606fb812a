#include "ac2/internal/allocator/memory_fraction.h"

#include <algorithm>
#include <array>
#include <atomic>

namespace ac2::internal {

namespace {

// Relaxed: the source's functions are part of the program, and a fraction is a number of its own.
std::atomic<const MemoryFractionSource*> source{nullptr};

// Devices that are more than these share one.
std::atomic<double>& noted_fraction(c10::DeviceIndex device) {
  struct NotedFraction {
    std::atomic<double> fraction{1};
  };
  static std::array<NotedFraction, 64> noted;
  return noted.at(static_cast<uint8_t>(device) % noted.size()).fraction;
}

}  // namespace

void set_memory_fraction_source(const MemoryFractionSource* other) {
  source.store(other, std::memory_order_relaxed);
}

const MemoryFractionSource* memory_fraction_source() {
  return source.load(std::memory_order_relaxed);
}

double memory_fraction(c10::DeviceIndex device) {
  const MemoryFractionSource* const there = memory_fraction_source();
  const bool tells = there != nullptr && there->get != nullptr;
  const double fraction = tells ? there->get(device) : noted_fraction(device).load(std::memory_order_relaxed);
  return std::clamp(fraction, 0., 1.);
}

void note_memory_fraction(c10::DeviceIndex device, double fraction) {
  noted_fraction(device).store(fraction, std::memory_order_relaxed);
}

}  // namespace ac2::internal

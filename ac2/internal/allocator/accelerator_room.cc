#include "ac2/internal/allocator/accelerator_room.h"

#include <algorithm>
#include <array>
#include <atomic>

#include "ac2/internal/allocator/memory_fraction.h"
#include "ac2/internal/allocator/retried_op.h"
#include "ac2/internal/allocator/shortage.h"
#include "ac2/internal/libtorch/gradient_sizes.h"
#include "ac2/internal/libtorch/torch_compat.h"

namespace ac2::internal {

namespace {

// Relaxed: the device's allocator has its lock where these are used.
struct Noted {
  // The reserved bytes before the segment that is being taken, if neither a node nor an op that is tried again takes
  // it.
  std::atomic<int64_t> before_segment{kNoSegment};
  std::atomic<int64_t> largest_segment{0};

  static constexpr int64_t kNoSegment = -1;
};

// Devices that are more than these share one.
Noted& noted_of(c10::DeviceIndex device) {
  static std::array<Noted, 64> noted;
  return noted.at(static_cast<uint8_t>(device) % noted.size());
}

// On an H200 a backward of layers whose gradients have 32 MiB was seen to ask for 64 MiB at once.
constexpr int64_t kWorkspace = int64_t{64} << 20;

std::optional<AcceleratorRoom> room_by_libtorch(c10::DeviceIndex device) {
  const std::optional<DeviceMemory> memory = memory_of_accelerator(device);
  if (!memory) {
    return std::nullopt;
  }
  const auto limit = static_cast<int64_t>(memory_fraction(device) * static_cast<double>(memory->total));
  // CUDA's allocator gives back only whole pages, of 20 MiB, of a segment that grows. A free block that does not fill
  // its pages is no room for a block elsewhere. How much of what is idle fills whole pages is not known, so half
  // counts.
  const int64_t idle = has_expandable_segments() ? memory->idle / 2 : memory->idle;
  return AcceleratorRoom{.total = memory->total,
                         .limit = limit,
                         .reserved = memory->reserved,
                         .untouched = std::max<int64_t>(std::min(memory->free, limit - memory->reserved), 0),
                         .idle = idle,
                         .workspace = std::min(kWorkspace, limit / 8)};
}

constexpr AcceleratorAllocator kLibTorchs = {.room_of = &room_by_libtorch,
                                             .give_back_idle = &empty_cache_of_accelerators};
std::atomic<const AcceleratorAllocator*> allocator{&kLibTorchs};

int64_t enough_for_anything_else(Noted& noted, const AcceleratorRoom& room, const HeldValues& held) {
  noted.before_segment.store(room.reserved, std::memory_order_relaxed);
  const int64_t largest = noted.largest_segment.load(std::memory_order_relaxed);
  return std::max(held.backwards < HeldValues::kFirstSteps ? room.limit / 8 : 0,
                  std::min(largest / 4 * 5, room.limit / 4));
}

}  // namespace

std::optional<AcceleratorRoom> room_of_accelerator(c10::DeviceIndex device) {
  return allocator.load(std::memory_order_relaxed)->room_of(device);
}

void give_back_idle_memory() {
  if (has_expandable_segments()) {
    return;
  }
  allocator.load(std::memory_order_relaxed)->give_back_idle();
}

bool make_room_on(c10::Device device) {
  Noted& noted = noted_of(device.index());
  const int64_t before_segment = noted.before_segment.exchange(Noted::kNoSegment, std::memory_order_relaxed);
  if (RetriedOp::is_under_way()) {
    return false;
  }
  const HeldValues held = held_values();
  // While a graph is captured, dropped memory may not be given back to the device.
  if (held.bytes == 0 || is_capturing_graph()) {
    return false;
  }
  std::optional<AcceleratorRoom> room = room_of_accelerator(device.index());
  if (!room) {
    return false;
  }
  if (before_segment != Noted::kNoSegment) {
    const int64_t largest = noted.largest_segment.load(std::memory_order_relaxed);
    noted.largest_segment.store(std::max(largest, room->reserved - before_segment), std::memory_order_relaxed);
  }
  const int64_t gradient = bytes_of_largest_gradient();
  const int64_t expected = gradient > 0 ? gradient / 4 * 5 : enough_for_anything_else(noted, *room, held);
  const int64_t enough = std::max(expected, room->least());
  bool has_dropped = false;
  while (room && room->left() < enough && relieve_shortage(device, enough - room->left()) > 0) {
    has_dropped = true;
    room = room_of_accelerator(device.index());
  }
  return has_dropped;
}

void set_accelerator_allocator(const AcceleratorAllocator* other) {
  allocator.store(other != nullptr ? other : &kLibTorchs, std::memory_order_relaxed);
}

}  // namespace ac2::internal

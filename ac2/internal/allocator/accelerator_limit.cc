#include "ac2/internal/allocator/accelerator_limit.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "ac2/internal/allocator/accelerator_room.h"
#include "ac2/internal/allocator/memory_fraction.h"
#include "ac2/internal/locks/fork_locks.h"
#include "ac2/internal/locks/mutex.h"

namespace ac2::internal {

namespace {

struct LimitsOfDevice {
  absl::btree_multiset<int64_t> bytes;
  int64_t total = 0;  // the device's memory
  double before = 1;  // the first limit
  double set = 1;     // by the last one
};

struct Limits {
  Mutex mutex;
  absl::btree_map<c10::DeviceIndex, LimitsOfDevice> of_devices ABSL_GUARDED_BY(mutex);

  static Limits& get() {
    static auto* limits = [] {
      auto* made = new Limits;  // leaked: graphs may outlive static destruction
      ForkLocks::add_last(made->mutex);
      return made;
    }();
    return *limits;
  }
};

// The allocator rounds a fraction to bytes.
bool is_same_fraction(double one, double other) {
  return std::abs(one - other) < 1e-6;
}

double fraction_for(const LimitsOfDevice& limits) {
  return std::min(limits.before, static_cast<double>(*limits.bytes.begin()) / static_cast<double>(limits.total));
}

}  // namespace

// The functions of the source are called without the lock: one of them may wait for Python's.
std::unique_ptr<AcceleratorLimit> AcceleratorLimit::on(c10::Device device, int64_t bytes) {
  const MemoryFractionSource* const source = memory_fraction_source();
  if (source == nullptr || source->set == nullptr || source->type != device.type()) {
    return nullptr;
  }
  const std::optional<AcceleratorRoom> room = room_of_accelerator(device.index());
  if (!room || room->total <= 0) {
    return nullptr;
  }
  const double before = memory_fraction(device.index());
  double fraction = 1;
  {
    Limits& all = Limits::get();
    const MutexLock lock(all.mutex);
    LimitsOfDevice& limits = all.of_devices[device.index()];
    if (limits.bytes.empty()) {
      limits.before = before;
    }
    limits.total = room->total;
    limits.bytes.insert(bytes);
    fraction = limits.set = fraction_for(limits);
  }
  std::unique_ptr<AcceleratorLimit> limit(new AcceleratorLimit(device.index(), bytes));
  source->set(device.index(), fraction);
  note_memory_fraction(device.index(), fraction);
  return limit;
}

AcceleratorLimit::~AcceleratorLimit() {
  const double now = memory_fraction(device_);
  double fraction = 1;
  bool is_ours = false;
  {
    Limits& all = Limits::get();
    const MutexLock lock(all.mutex);
    LimitsOfDevice& limits = all.of_devices[device_];
    limits.bytes.erase(limits.bytes.find(bytes_));
    is_ours = is_same_fraction(now, limits.set);
    fraction = limits.bytes.empty() ? limits.before : fraction_for(limits);
    if (is_ours) {
      limits.set = fraction;
    }
  }
  if (const MemoryFractionSource* const source = memory_fraction_source(); source != nullptr && is_ours) {
    source->set_later(device_, fraction);
    note_memory_fraction(device_, fraction);
  }
}

}  // namespace ac2::internal

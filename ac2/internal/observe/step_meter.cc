#include "ac2/internal/observe/step_meter.h"

#include <algorithm>
#include <utility>

namespace ac2::internal {

namespace {

// Something beside the tape refers to what forward computed.
bool program_has(const Value& value) {
  const c10::StorageImpl* const original = value.original_address();
  if (original == nullptr || !value.original_is_alive()) {
    return false;
  }
  const auto is_original = [&](const c10::Storage& storage) {
    return storage && storage.unsafeGetStorageImpl() == original ? 1U : 0U;
  };
  const size_t of_tape = is_original(value.held_storage()) + is_original(value.there_storage()) +
                         (value.replayed_tensor().defined() ? is_original(value.replayed_tensor().storage()) : 0U);
  return value.weak_original().use_count() > of_tape;
}

}  // namespace

StepMeter::StepMeter(std::unique_ptr<MemoryMeter> memory) : memory_(std::move(memory)) {
  readings_.start = memory_->read().now;
}

void StepMeter::count_if_older(const Value& value) {
  const auto storage = value.lock_original();
  if (storage == nullptr) {
    return;
  }
  const void* const data = storage->_mutable_data_ptr_no_checks().get();
  if (data != nullptr && !memory_->has_counted(data) && older_.insert(data).second) {
    older_bytes_ += static_cast<int64_t>(storage->nbytes());
  }
}

void StepMeter::meets(const Value& value) {
  const auto id = static_cast<uint32_t>(readings_.is_there.size());
  bool is_there = false;
  if (!value.is_opaque() && !value.is_managed()) {
    const auto storage = value.lock_original();
    const c10::Device here = memory_->device();
    is_there = storage != nullptr && storage->device_type() == here.type() &&
               (here.is_cpu() || storage->device().index() == here.index());
  }
  readings_.is_there.push_back(is_there ? 1 : 0);
  is_watched_.push_back(0);
  if (value.producer() == nullptr && is_there) {
    count_if_older(value);
    watch(value, id);
  }
}

void StepMeter::watch(const Value& value, uint32_t id) {
  if (is_watched_[id] == 0) {
    is_watched_[id] = 1;
    watched_.push_back({id, &value});
  }
}

StepReadings::Look& StepMeter::look() {
  const MemoryMeter::Reading reading = memory_->read();
  StepReadings::Look& look = readings_.looks.emplace_back();
  look = {.event = events_,
          .now = reading.now,
          .highest = reading.highest,
          .allocated = reading.allocated,
          .found = std::exchange(died_, {})};
  std::erase_if(watched_, [&](const Watched& watched) {
    if (program_has(*watched.value)) {
      return false;
    }
    is_watched_[watched.id] = 0;
    look.found.push_back({.value = watched.id, .has = false});
    return true;
  });
  return look;
}

void StepMeter::before_event() {
  look();
  ++events_;
  readings_.handed_out.emplace_back();
}

void StepMeter::hands_out(const Value& value, uint32_t id) {
  if (readings_.is_there[id] != 0) {
    readings_.handed_out.back().push_back(id);
    watch(value, id);
  }
}

void StepMeter::died(uint32_t id) {
  if (is_watched_[id] != 0) {
    is_watched_[id] = 0;
    watched_.erase(
        std::find_if(watched_.begin(), watched_.end(), [&](const Watched& other) { return other.id == id; }));
    died_.push_back({.value = id, .has = false});
  }
}

void StepMeter::op_begins() {
  look();
}

void StepMeter::op_ended() {
  const StepReadings::Look& after = look();
  workspace_ = std::max<int64_t>(0, after.highest - after.now);
}

void StepMeter::notes_op() {
  readings_.workspaces.push_back(std::exchange(workspace_, 0));
}

std::optional<StepReadings> StepMeter::take() {
  look();
  if (is_disturbed_) {
    return std::nullopt;
  }
  readings_.start += older_bytes_;
  for (StepReadings::Look& look : readings_.looks) {
    look.now += older_bytes_;
    look.highest += older_bytes_;
  }
  return std::move(readings_);
}

}  // namespace ac2::internal

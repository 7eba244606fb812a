// Reads the memory of a device while a step is recorded, and finds out which results the program has at each look.
//
//   StepMeter meter(MemoryMeter::of(device));
//   meter.before_event();            // by the StepLog, of which it is a part, for each event of the StepGraph
//   meter.hands_out(value, id);      // the event that was noted last does
//   …
//   const std::optional<StepReadings> readings = meter.take();
//
// The program has a value if something else than the tape refers to its storage: a tensor of the program's, of
// autograd's or of a kernel's. From when autograd takes a value until the next look autograd has it.
//
// Cost: one look at the memory and at each value that the program has, for each event, and twice for each op.
//
// Threads: guarded by the lock of the tape whose step it is.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "ac2/internal/allocator/memory_meter.h"
#include "ac2/internal/graph/value.h"
#include "ac2/internal/planning/step_readings.h"

namespace ac2::internal {

class StepMeter {
 public:
  explicit StepMeter(std::unique_ptr<MemoryMeter> memory);

  // A value gets the next id.
  void meets(const Value& value);
  // The next event is about to be noted.
  void before_event();
  // The event that was noted last hands the value out.
  void hands_out(const Value& value, uint32_t id);
  void died(uint32_t id);
  // The kernel of an op begins, or has ended.
  void op_begins();
  void op_ended();
  // The op whose kernel ended last is noted.
  void notes_op();
  // The recording drops what a plan may keep, so that the readings say nothing of a plan.
  void is_disturbed() { is_disturbed_ = true; }

  // Once the step is over. Nothing if the recording was disturbed.
  std::optional<StepReadings> take();

 private:
  struct Watched {
    uint32_t id;
    const Value* value;
  };

  StepReadings::Look& look();
  void watch(const Value& value, uint32_t id);
  void count_if_older(const Value& value);

  const std::unique_ptr<MemoryMeter> memory_;
  StepReadings readings_;
  std::vector<Watched> watched_;            // those that the program has
  std::vector<uint8_t> is_watched_;         // by value
  std::vector<StepReadings::Change> died_;  // since the last look
  absl::flat_hash_set<const void*> older_;  // data that was there before the readings began, and is not in them
  int64_t older_bytes_ = 0;
  int64_t workspace_ = 0;  // of the last op
  uint32_t events_ = 0;
  bool is_disturbed_ = false;
};

}  // namespace ac2::internal

// How many bytes a device copies to the host while ops of a unit of cost run, measured by events of the device.
//
//   CopySpeed speed;
//   speed.note_program(clock, here);                // `here`: an event on the program's stream
//   speed.note_copy(begun, done, nbytes);           // events around a copy
//   speed.bytes_per_cost(clock.source);           // 0 until both were measured
//
// The costs of ops are in units that only their ratios mean something in, and a program runs ahead of its device. So
// two things are measured: the bytes of a copy over the time between its events, and the cost of what a program has run
// between two events over the time between these. Nothing waits for an event. An event is asked when something is noted
// next.
//
// Where the device's events cannot be timed the speed stays unknown. Threads: guarded by the mutex of the
// OffloadDevice.
#pragma once

#include <c10/core/Event.h>

#include <array>
#include <cstddef>
#include <memory>
#include <optional>

#include "ac2/internal/operators/program_clock.h"

namespace ac2::internal {

class CopySpeed {
 public:
  using EventPtr = std::shared_ptr<c10::Event>;

  void note_program(const ProgramClock& clock, EventPtr here);
  void note_copy(EventPtr begun, EventPtr done, size_t nbytes);
  // Asks the events once more.
  void look();
  // Lets go of events that were not timed yet.
  void drop_events();
  // 0 until it is known.
  double bytes_per_cost(CostSource source) const;
  // Whether note_program() is worth an event: the cost of the program's ops in a millisecond is neither known nor
  // waited for.
  bool needs_program(const ProgramClock& clock) const;

 private:
  struct Place {
    ProgramClock clock;
    EventPtr event;
  };
  struct Copy {
    EventPtr begun, done;
    double bytes = 0;
  };

  void look_at_copy();
  void look_at_program();

  std::optional<Place> from_, to_;
  std::optional<Copy> copy_;
  // Both are 0 until they are known.
  double bytes_per_ms_ = 0;
  std::array<double, 2> cost_per_ms_ = {0, 0};  // by CostSource
};

}  // namespace ac2::internal

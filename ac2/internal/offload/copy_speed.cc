#include "ac2/internal/offload/copy_speed.h"

#include <c10/util/Exception.h>

#include <cmath>
#include <utility>

namespace ac2::internal {

namespace {

// 0 if the events cannot be timed.
double milliseconds(const c10::Event& from, const c10::Event& to) {
  try {
    return from.elapsedTime(to);
  } catch (const c10::Error&) {
    return 0;
  }
}

// Of old and new measurements, for single ones vary: the geometric mean, so that it makes no difference whether rates
// or times are blended.
double blend(double old, double measured) {
  return old == 0 ? measured : std::sqrt(old * measured);
}

}  // namespace

void CopySpeed::note_program(const ProgramClock& clock, EventPtr here) {
  look();
  if (!from_ || from_->clock.owner != clock.owner || from_->clock.source != clock.source) {
    from_ = {clock, std::move(here)};
    to_.reset();
  } else if (!to_ && clock.cost > from_->clock.cost) {
    to_ = {clock, std::move(here)};
  }
}

void CopySpeed::note_copy(EventPtr begun, EventPtr done, size_t nbytes) {
  look();
  if (!copy_) {
    copy_ = {std::move(begun), std::move(done), static_cast<double>(nbytes)};
  }
}

double CopySpeed::bytes_per_cost(CostSource source) const {
  const double cost_per_ms = cost_per_ms_.at(static_cast<size_t>(source));
  return cost_per_ms > 0 ? bytes_per_ms_ / cost_per_ms : 0;
}

bool CopySpeed::needs_program(const ProgramClock& clock) const {
  return cost_per_ms_.at(static_cast<size_t>(clock.source)) == 0 && !to_ && (!from_ || clock.cost > from_->clock.cost);
}

void CopySpeed::drop_events() {
  look();
  from_.reset();
  to_.reset();
  copy_.reset();
}

void CopySpeed::look() {
  look_at_copy();
  look_at_program();
}

void CopySpeed::look_at_copy() {
  if (!copy_ || !copy_->done->query()) {
    return;
  }
  if (const double time = milliseconds(*copy_->begun, *copy_->done); time > 0) {
    bytes_per_ms_ = blend(bytes_per_ms_, copy_->bytes / time);
  }
  copy_.reset();
}

void CopySpeed::look_at_program() {
  if (!to_ || !from_->event->query() || !to_->event->query()) {
    return;
  }
  if (const double time = milliseconds(*from_->event, *to_->event); time > 0) {
    double& cost_per_ms = cost_per_ms_.at(static_cast<size_t>(to_->clock.source));
    cost_per_ms = blend(cost_per_ms, (to_->clock.cost - from_->clock.cost) / time);
  }
  from_ = std::exchange(to_, std::nullopt);
}

}  // namespace ac2::internal

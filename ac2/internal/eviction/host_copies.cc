#include "ac2/internal/eviction/host_copies.h"

#include <algorithm>
#include <limits>

#include "ac2/internal/eviction/evictor_check.h"

namespace ac2::internal {

namespace {

// In one call of next() at most so many candidates are looked at.
constexpr int kMostLooks = 32;
// Of a way back that is hidden beside the ops, so much counts nevertheless.
constexpr double kHiddenShare = 0.01;

}  // namespace

void HostCopies::set_speed(double bytes_per_cost) {
  const bool was_known = knows_speed();
  costs_.set_copy_speed(bytes_per_cost);
  if (was_known) {
    return;
  }
  for (Copy& copy : under_way_) {
    copy.done = free_at_ = std::max(free_at_, now()) + time_of_copy(copy.value);
  }
}

double HostCopies::time_of_copy(ValueId value) const {
  return costs_.of_copying(evictor_.graph().value(value).bytes);
}

// --- which values are copied -----------------------------------------------------------------------------------------

void HostCopies::may_copy(ValueId id) {
  const EvictorGraph::Value& value = evictor_.graph().value(id);
  evictor_check(value.producer != kNoId, "a value that cannot be computed again is not dropped");
  if (id >= states_.size()) {
    states_.resize(id + 1);
  }
  if (states_[id].state != State::kMayNot || value.bytes == 0) {
    return;
  }
  states_[id] = {State::kMay, evictor_.graph().node(value.producer).cost / static_cast<double>(value.bytes)};
  candidates_.emplace(-states_[id].worth, id);
}

void HostCopies::remove_candidate(ValueId id) {
  if (is(id, State::kMay)) {
    candidates_.erase({-states_[id].worth, id});
  }
}

void HostCopies::forget(ValueId id) {
  if (id >= states_.size() || states_[id].state == State::kMayNot) {
    return;
  }
  remove_candidate(id);
  if (is(id, State::kUnderWay)) {
    std::erase_if(under_way_, [id](const Copy& copy) { return copy.value == id; });
    evictor_.unpin(id);
  }
  const bool had_copy = has_copy(id);
  states_[id] = {};
  if (had_copy) {
    evictor_.cost_of_return_changed(id);
  }
}

bool HostCopies::is_idle(ValueId id) const {
  const double both_ways = 2 * time_of_copy(id);
  return foresight_.knows_uses() ? foresight_.next_use(id) - foresight_.now() >= both_ways
                                 : evictor_.time() - evictor_.last_use(id) >= both_ways;
}

ValueId HostCopies::next() {
  if (under_way_.size() >= kUnderWay) {
    return kNoId;
  }
  int looks = 0;
  for (auto it = candidates_.begin(); it != candidates_.end() && looks < kMostLooks; ++looks) {
    const ValueId id = it->second;
    if (evictor_.place(id) == Place::kNowhere) {
      // The value was dropped. A value that is computed again may be dropped again.
      it = candidates_.erase(it);
      states_[id] = {};
      continue;
    }
    if (evictor_.may_drop(id) && evictor_.graph().value(id).hooks > 0 && is_idle(id)) {
      return id;
    }
    ++it;
  }
  return kNoId;
}

void HostCopies::began(ValueId id) {
  evictor_check(is(id, State::kMay), "a value is copied that is not a candidate");
  remove_candidate(id);
  states_[id].state = State::kUnderWay;
  evictor_.pin(id);
  free_at_ = std::max(free_at_, now()) + time_of_copy(id);
  under_way_.push_back({id, knows_speed() ? free_at_ : std::numeric_limits<double>::infinity()});
}

// --- copies under way ------------------------------------------------------------------------------------------------

void HostCopies::settle() {
  while (!under_way_.empty() && under_way_.front().done <= now()) {
    first_is_done();
  }
}

void HostCopies::first_is_done() {
  evictor_check(!under_way_.empty(), "no copy is under way");
  const ValueId id = under_way_.front().value;
  under_way_.pop_front();
  states_[id].state = State::kCopied;
  evictor_.unpin(id);
}

double HostCopies::cost_of_way_back(ValueId id) const {
  const double time = time_of_copy(id);
  // Where the next use is not known, backward is taken to begin now and to last as long as forward: the older a value,
  // the later backward comes to it.
  const double until_use =
      foresight_.knows_uses() ? foresight_.next_use(id) - foresight_.now() : evictor_.time() - evictor_.last_use(id);
  const double before = costs_.of_copying(evictor_.on_host_bytes());
  return std::clamp(before + time - until_use, kHiddenShare * time, time);
}

double HostCopies::cost_of_return(ValueId id) const {
  return has_copy(id) ? cost_of_way_back(id) : std::numeric_limits<double>::infinity();
}

bool HostCopies::is_cheaper_to_compute(ValueId id, double queued) const {
  return knows_speed() && evictor_.cost_of_computing(id) < queued + time_of_copy(id);
}

bool HostCopies::is_worth_waiting_for(ValueId victim) const {
  if (under_way_.empty()) {
    return false;
  }
  if (victim == kNoId) {
    return true;
  }
  if (!evictor_.is_needed(victim) || !knows_speed()) {
    return false;
  }
  const Copy& first = under_way_.front();
  const double wait = std::max(0.0, first.done - now()) + cost_of_way_back(first.value);
  return evictor_.score(first.value, wait) < evictor_.score(victim);
}

ValueId HostCopies::wait_for_first() {
  evictor_check(!under_way_.empty(), "no copy is under way");
  const Copy first = under_way_.front();
  if (knows_speed()) {
    waited_ += std::max(0.0, first.done - now());
  }
  first_is_done();
  return first.value;
}

}  // namespace ac2::internal

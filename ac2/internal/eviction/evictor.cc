#include "ac2/internal/eviction/evictor.h"

#include <utility>

#include "ac2/internal/eviction/evictor_check.h"

namespace ac2::internal {

namespace {

// Candidates whose cost is counted anew in one call of next_victim() because they look best or have waited long. Few
// are needed: what changes is marked.
constexpr int kMaxRescored = 32;
constexpr int kRefreshed = 2;
constexpr int kRefreshSteps = 16;

}  // namespace

Evictor::Evictor(const Options& options)
    : rule_(options.rule, options.budget), budget_(options.budget), step_length_(options.step_length) {
  evictor_check(options.budget > 0, "a budget must be positive");
}

void Evictor::set_budget(int64_t budget) {
  evictor_check(budget > 0, "a budget must be positive");
  budget_ = budget;
  rule_.set_budget(budget);
}

// --- values ----------------------------------------------------------------------------------------------------------

Evictor::State& Evictor::new_state(ValueId id) {
  if (id >= states_.size()) {
    states_.resize(id + 1);
  }
  // The queues may still hold the value that had this id.
  State fresh;
  fresh.queued = states_[id].queued;
  fresh.unneeded = states_[id].unneeded;
  states_[id] = fresh;
  return states_[id];
}

ValueId Evictor::add_outside(int64_t bytes, Place place) {
  evictor_check(place != Place::kNowhere, "a value from outside has no bytes");
  const ValueId id = graph_.add_outside(bytes);
  State& state = new_state(id);
  state.retention = Retention::kMustSave;
  state.place = place;
  count(id, 1);
  return id;
}

ValueId Evictor::add_result(NodeId node, int64_t bytes, Retention retention) {
  const ValueId id = graph_.add_result(node, bytes);
  State& state = new_state(id);
  state.retention = retention;
  state.last_use = time_;
  return id;
}

void Evictor::forget(ValueId id) {
  if (states_[id].place != Place::kNowhere) {
    set_place(id, Place::kNowhere);
  }
  unindex(id);
  graph_.forget(id);
}

void Evictor::count(ValueId id, int64_t sign) {
  if (states_[id].place == Place::kHeld) {
    const int64_t bytes = sign * graph_.value(id).bytes;
    held_bytes_ += bytes;
    if (!evictable(id)) {
      unevictable_bytes_ += bytes;
    }
  }
}

bool Evictor::evictable(ValueId id) const {
  return states_[id].retention != Retention::kMustSave && states_[id].pins == 0;
}

bool Evictor::is_candidate(ValueId id) const {
  const EvictorGraph::Value& value = graph_.value(id);
  return value.exists && value.needs > 0 && value.bytes > 0 && states_[id].place == Place::kHeld && evictable(id);
}

void Evictor::set_place(ValueId id, Place place) {
  State& state = states_[id];
  if (state.place == place) {
    return;
  }
  count(id, -1);
  const bool was_there = std::exchange(state.place, place) != Place::kNowhere;
  count(id, 1);
  const bool is_there = place != Place::kNowhere;
  if (is_there && !was_there) {
    graph_.set_resident(id);
    state.last_use = time_;
  } else if (!is_there) {
    graph_.set_absent(id);
  }
  if (is_there != was_there) {
    mark_neighbours_stale(id);
  }
  mark_stale(id);
  collect_unneeded();
}

void Evictor::set_retention(ValueId id, Retention retention) {
  evictor_check(retention == Retention::kMustSave || graph_.value(id).producer != kNoId,
                "a value without producer cannot be dropped");
  unindex(id);
  count(id, -1);
  states_[id].retention = retention;
  count(id, 1);
  mark_stale(id);
}

void Evictor::add_holder(ValueId id) {
  graph_.add_holder(id);
  mark_stale(id);
}

void Evictor::remove_holder(ValueId id) {
  graph_.remove_holder(id);
  collect_unneeded();
}

void Evictor::pin(ValueId id) {
  if (states_[id].pins == 0) {
    count(id, -1);
    states_[id].pins = 1;
    count(id, 1);
    unindex(id);
  } else {
    ++states_[id].pins;
  }
}

void Evictor::unpin(ValueId id) {
  evictor_check(states_[id].pins > 0, "a value is unpinned that was not pinned");
  if (states_[id].pins > 1) {
    --states_[id].pins;
    return;
  }
  count(id, -1);
  states_[id].pins = 0;
  count(id, 1);
  if (graph_.is_needed(id)) {
    mark_stale(id);
  } else if (states_[id].place == Place::kHeld) {
    push_unneeded(id);
  }
}

void Evictor::used(ValueId id) {
  // In the index a key may rise unnoticed.
  states_[id].last_use = time_;
}

void Evictor::set_next_use(ValueId id, double time) {
  states_[id].next_use = time;
  mark_stale(id);
}

void Evictor::set_bias(ValueId id, double factor) {
  evictor_check(factor > 0, "a bias must be positive");
  states_[id].bias = factor;
  mark_stale(id);
}

void Evictor::ran(double cost, Run run) {
  time_ += cost;
  if (run == Run::kFirst) {
    program_time_ += cost;
  }
}

// --- what to drop ----------------------------------------------------------------------------------------------------

void Evictor::collect_unneeded() {
  std::vector<ValueId>& turned = graph_.turned_unneeded();
  for (const ValueId id : turned) {
    push_unneeded(id);
  }
  turned.clear();
}

void Evictor::push_unneeded(ValueId id) {
  if (!std::exchange(states_[id].unneeded, true)) {
    unneeded_.push(id, graph_.value(id).bytes);
  }
}

ValueId Evictor::take_unneeded() {
  while (!unneeded_.empty()) {
    const ValueId id = unneeded_.top();
    unneeded_.pop();
    states_[id].unneeded = false;
    const EvictorGraph::Value& value = graph_.value(id);
    if (value.exists && value.needs == 0 && states_[id].place == Place::kHeld && evictable(id)) {
      return id;
    }
  }
  return kNoId;
}

void Evictor::unindex(ValueId id) {
  for (CandidateIndex& index : indices_) {
    index.erase(id);
  }
}

void Evictor::mark_stale(ValueId id) {
  if (!states_[id].queued) {
    states_[id].queued = true;
    stale_.push_back(id);
  }
}

void Evictor::mark_neighbours_stale(ValueId id) {
  if (!pressed_) {
    return;
  }
  affected_.clear();
  rule_.affected_by(graph_, id, affected_);
  for (const ValueId other : affected_) {
    mark_stale(other);
  }
}

void Evictor::score(ValueId id) {
  if (!is_candidate(id)) {
    unindex(id);
    return;
  }
  const double rate =
      states_[id].bias * rule_.cost_of_dropping(graph_, id) / static_cast<double>(graph_.value(id).bytes);
  index_of(id).insert(id, rate, key(id));
}

void Evictor::score_stale() {
  for (const ValueId id : stale_) {
    states_[id].queued = false;
    score(id);
  }
  stale_.clear();
}

void Evictor::refresh_some() {
  if (states_.empty()) {
    return;
  }
  int refreshed = 0;
  for (int step = 0; step < kRefreshSteps && refreshed < kRefreshed; ++step) {
    cursor_ = cursor_ + 1 < states_.size() ? cursor_ + 1 : 0;
    if (is_candidate(cursor_)) {
      score(cursor_);
      ++refreshed;
    }
  }
}

double Evictor::next_use(ValueId id) const {
  if (states_[id].next_use != kNever) {
    return states_[id].next_use;
  }
  double first = kNever;
  for (const EvictorGraph::Use& use : graph_.value(id).uses) {
    if (graph_.node(use.node).missing > 0) {
      for (const ValueId result : graph_.node(use.node).results) {
        if (states_[result].place == Place::kNowhere && graph_.is_needed(result)) {
          first = std::min(first, states_[result].next_use);
        }
      }
    }
  }
  return first != kNever ? first : 2 * program_time_;
}

double Evictor::key(ValueId id) const {
  return step_length_ > 0 ? -next_use(id) : states_[id].last_use;
}

double Evictor::weight(double key) const {
  const double distance = step_length_ > 0 ? -key - program_time_ : time_ - key;
  return rule_.weight(std::max(0.0, distance), step_length_ > 0 ? step_length_ : time_ - pressed_since_);
}

ValueId Evictor::best_of(CandidateIndex& index) {
  const auto key_now = [this](ValueId id) { return step_length_ > 0 ? -kNever : key(id); };
  const auto weight_of = [this](double key) { return weight(key); };
  for (int i = 0; i < kMaxRescored; ++i) {
    const ValueId best = index.best(key_now, weight_of);
    if (best == kNoId) {
      return kNoId;
    }
    const int32_t bucket = index.bucket(best);
    score(best);
    if (index.bucket(best) <= bucket) {
      return best;
    }
  }
  return index.best(key_now, weight_of);
}

ValueId Evictor::next_victim() {
  const ValueId unneeded = take_unneeded();
  if (unneeded != kNoId) {
    return unneeded;
  }
  pressed_ = true;
  if (graph_.missing() == 0) {
    pressed_since_ = time_;
  }
  score_stale();
  refresh_some();
  for (CandidateIndex& index : indices_) {
    const ValueId best = best_of(index);
    if (best != kNoId) {
      return best;
    }
  }
  return kNoId;
}

}  // namespace ac2::internal

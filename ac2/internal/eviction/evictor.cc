#include "ac2/internal/eviction/evictor.h"

#include <algorithm>
#include <utility>

#include "ac2/internal/eviction/evictor_check.h"

namespace ac2::internal {

Evictor::Evictor(const Options& options) : rule_(options.rule, options.budget), budget_(options.budget) {
  evictor_check(options.budget > 0, "a budget must be positive");
}

void Evictor::take_over(const Evictor& other) {
  const Advisers advisers = advisers_;
  *this = other;
  advisers_ = advisers;
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
  // The queues may still have an entry of the value that had this id before.
  State fresh;
  fresh.in_stale = states_[id].in_stale;
  fresh.in_unneeded = states_[id].in_unneeded;
  states_[id] = fresh;
  return states_[id];
}

ValueId Evictor::add_outside(int64_t bytes, Place place) {
  evictor_check(place == Place::kHeld || place == Place::kElsewhere, "a value from outside has no bytes");
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

void Evictor::make_outside(ValueId id) {
  set_retention(id, Retention::kMustSave);
  graph_.make_outside(id);
}

void Evictor::count(ValueId id, int64_t sign) {
  int64_t bytes = sign * graph_.value(id).bytes;
  if (states_[id].place == Place::kOnHost) {
    on_host_bytes_ += bytes;
  } else if (counts(states_[id].place)) {
    bytes = (states_[id].place == Place::kHeld ? bytes : 0) + sign * std::max<int64_t>(states_[id].packed_bytes, 0);
    held_bytes_ += bytes;
    if (!is_evictable(id)) {
      unevictable_bytes_ += bytes;
    } else if (states_[id].kept_last) {
      kept_last_bytes_ += bytes;
    }
  }
}

bool Evictor::is_evictable(ValueId id) const {
  return states_[id].retention != Retention::kMustSave && states_[id].pins == 0;
}

bool Evictor::is_candidate(ValueId id) const {
  const EvictorGraph::Value& value = graph_.value(id);
  return value.exists && value.needs > 0 && freed_bytes(id) > 0 && may_drop(id);
}

void Evictor::set_place(ValueId id, Place place, int64_t packed_bytes) {
  State& state = states_[id];
  if (state.place == place && state.packed_bytes == packed_bytes) {
    return;
  }
  count(id, -1);
  state.packed_bytes = packed_bytes;
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

// --- what would not come back ----------------------------------------------------------------------------------------

bool Evictor::stays(ValueId id) const {
  const State& state = states_[id];
  return state.retention == Retention::kMustSave ||
         (state.kept_last && counts(state.place) && graph_.value(id).hooks > 0);
}

void Evictor::set_kept_last(ValueId id, bool kept_last) {
  if (states_[id].kept_last != kept_last) {
    unindex(id);
    count(id, -1);
    states_[id].kept_last = kept_last;
    count(id, 1);
    mark_stale(id);
  }
}

void Evictor::note_needs(NodeId node, int64_t fixed) {
  needs_.note(graph_, node, [this](ValueId id) { return stays(id); });
  for (const ValueId result : graph_.node(node).results) {
    // Later values are gone when this one comes back in backward, and so are their bytes.
    set_kept_last(result, bytes_to_replay(result) > budget_ - fixed - unevictable_bytes_ - kept_last_bytes_);
  }
}

void Evictor::note_all_needs(int64_t fixed) {
  std::vector<NodeId> nodes;
  for (NodeId node = 0; node < graph_.node_limit(); ++node) {
    if (!graph_.node(node).results.empty()) {
      nodes.push_back(node);
    }
  }
  std::sort(nodes.begin(), nodes.end(), [this](NodeId a, NodeId b) { return needs_.age(a) < needs_.age(b); });
  for (const NodeId node : nodes) {
    for (const ValueId result : graph_.node(node).results) {
      set_kept_last(result, false);
    }
  }
  for (const NodeId node : nodes) {
    note_needs(node, fixed);
  }
}

ReplayNeeds::Order Evictor::order_to_replay(ValueId value) const {
  const NodeId producer = graph_.value(value).producer;
  return producer == kNoId ? ReplayNeeds::Order()
                           : needs_.order_for(graph_, producer, [this](ValueId id) { return stays(id); });
}

void Evictor::add_hook(ValueId id) {
  if (states_[id].ignores_hooks) {
    ++states_[id].ignored_hooks;
    return;
  }
  graph_.add_hook(id);
  mark_stale(id);
}

void Evictor::remove_hook(ValueId id) {
  if (states_[id].ignores_hooks) {
    --states_[id].ignored_hooks;
    return;
  }
  graph_.remove_hook(id);
  collect_unneeded();
}

void Evictor::ignore_hooks(ValueId id) {
  if (!states_[id].ignores_hooks) {
    const int32_t hooks = graph_.value(id).hooks;
    for (int32_t i = 0; i < hooks; ++i) {
      graph_.remove_hook(id);
    }
    states_[id].ignores_hooks = true;
    states_[id].ignored_hooks = hooks;
    collect_unneeded();
  }
}

void Evictor::heed_hooks(ValueId id) {
  if (std::exchange(states_[id].ignores_hooks, false)) {
    for (int32_t i = std::exchange(states_[id].ignored_hooks, 0); i > 0; --i) {
      graph_.add_hook(id);
    }
    mark_stale(id);
  }
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
  } else if (counts(states_[id].place)) {
    push_unneeded(id);
  }
}

void Evictor::used(ValueId id) {
  // The index is not told. The index notices a risen key when it comes to the value (CandidateIndex::best).
  states_[id].last_use = time_;
  if (is_pressed_ && knows_uses()) {
    mark_stale(id);
  }
}

void Evictor::foresight_changed() {
  if (!is_pressed_) {
    return;  // nothing is indexed
  }
  for (ValueId id = 0; id < states_.size(); ++id) {
    if (is_candidate(id)) {
      mark_stale(id);
    }
  }
}

void Evictor::ran(double cost) {
  time_ += cost;
}

}  // namespace ac2::internal

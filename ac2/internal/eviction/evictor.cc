#include "ac2/internal/eviction/evictor.h"

#include <algorithm>
#include <utility>

#include "ac2/internal/eviction/evictor_check.h"

namespace ac2::internal {

namespace {

// In one call of next_victim(), the cost is counted anew of at most kMaxRescored candidates that look best, and of
// kRefreshed others, found within kRefreshSteps values. Few are enough, because most changes of cost are marked.
constexpr int kMaxRescored = 32;
constexpr int kRefreshed = 2;
constexpr int kRefreshSteps = 16;

}  // namespace

Evictor::Evictor(const Options& options)
    : rule_(options.rule, options.budget),
      budget_(options.budget),
      foresight_(options.foresight),
      knows_uses_(foresight_ != nullptr && foresight_->knows_uses()) {
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
  // The queues may still have an entry of the value that had this id before.
  State fresh;
  fresh.in_stale = states_[id].in_stale;
  fresh.in_unneeded = states_[id].in_unneeded;
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

void Evictor::make_outside(ValueId id) {
  set_retention(id, Retention::kMustSave);
  graph_.make_outside(id);
}

void Evictor::count(ValueId id, int64_t sign) {
  if (states_[id].place == Place::kHeld) {
    const int64_t bytes = sign * graph_.value(id).bytes;
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
  return value.exists && value.needs > 0 && value.bytes > 0 && states_[id].place == Place::kHeld && is_evictable(id);
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

// --- what would not come back ----------------------------------------------------------------------------------------

bool Evictor::stays(ValueId id) const {
  const State& state = states_[id];
  return state.retention == Retention::kMustSave ||
         (state.kept_last && state.place == Place::kHeld && graph_.value(id).hooks > 0);
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
  graph_.add_hook(id);
  mark_stale(id);
}

void Evictor::remove_hook(ValueId id) {
  graph_.remove_hook(id);
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
  // The index is not told: it notices a risen key when it comes to the value (CandidateIndex::best).
  states_[id].last_use = time_;
}

void Evictor::ran(double cost) {
  time_ += cost;
}

// --- what to evict ---------------------------------------------------------------------------------------------------

void Evictor::collect_unneeded() {
  std::vector<ValueId>& turned = graph_.turned_unneeded();
  for (const ValueId id : turned) {
    push_unneeded(id);
  }
  turned.clear();
}

void Evictor::push_unneeded(ValueId id) {
  if (!std::exchange(states_[id].in_unneeded, true)) {
    unneeded_.push(id, graph_.value(id).bytes);
  }
}

ValueId Evictor::take_unneeded() {
  while (!unneeded_.empty()) {
    const ValueId id = unneeded_.top();
    unneeded_.pop();
    states_[id].in_unneeded = false;
    const EvictorGraph::Value& value = graph_.value(id);
    if (value.exists && value.needs == 0 && states_[id].place == Place::kHeld && is_evictable(id)) {
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
  if (!states_[id].in_stale) {
    states_[id].in_stale = true;
    stale_.push_back(id);
  }
}

void Evictor::mark_neighbours_stale(ValueId id) {
  if (!is_pressed_) {
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
  if (states_[id].kept_last) {
    // The oldest first, whatever they cost: the outcome must not depend on times.
    index_of(id).insert(id, 1, key(id));
    return;
  }
  double cost = rule_.cost_of_dropping(graph_, id);
  if (foresight_ != nullptr) {
    cost *= foresight_->cost_factor(id);
  }
  index_of(id).insert(id, cost / static_cast<double>(graph_.value(id).bytes), key(id));
}

void Evictor::score_stale() {
  for (const ValueId id : stale_) {
    states_[id].in_stale = false;
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

// A key is smaller the longer ago the value was used, or, if the next use is known, the later that is.
double Evictor::key(ValueId id) const {
  if (states_[id].kept_last) {
    return static_cast<double>(needs_.age(graph_.value(id).producer));
  }
  return knows_uses_ ? -foresight_->next_use(id) : states_[id].last_use;
}

double Evictor::weight(double key) const {
  const double distance = knows_uses_ ? -key - foresight_->now() : time_ - key;
  return rule_.weight(std::max(0.0, distance), knows_uses_ ? foresight_->step_length() : time_ - pressed_since_);
}

ValueId Evictor::best_of(CandidateIndex& index) {
  // Where next uses are known, a change of one marks its value: the key that the index has is still right.
  const auto key_now = [this](ValueId id) { return knows_uses_ ? -std::numeric_limits<double>::infinity() : key(id); };
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

ValueId Evictor::next_victim(bool spare_last) {
  const ValueId unneeded = take_unneeded();
  if (unneeded != kNoId) {
    return unneeded;
  }
  is_pressed_ = true;
  if (graph_.missing() == 0) {
    pressed_since_ = time_;
  }
  score_stale();
  refresh_some();
  for (size_t i = 0; i < indices_.size() - (spare_last ? 1 : 0); ++i) {
    const ValueId best = best_of(indices_[i]);
    if (best != kNoId) {
      return best;
    }
  }
  return kNoId;
}

}  // namespace ac2::internal

// Which value the evictor names next: the queue of what is unneeded, and the candidates with their scores.
#include <algorithm>
#include <limits>
#include <utility>

#include "ac2/internal/eviction/evictor.h"

namespace ac2::internal {

namespace {

// In one call of next_victim(), the cost is counted anew of at most kMaxRescored candidates that look best, and of
// kRefreshed others, found within kRefreshSteps values. Few are enough, because most changes of cost are marked.
constexpr int kMaxRescored = 32;
constexpr int kRefreshed = 2;
constexpr int kRefreshSteps = 16;

}  // namespace

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
    if (value.exists && value.needs == 0 && may_drop(id)) {
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

double Evictor::cost_of_dropping(ValueId id) {
  double cost = rule_.cost_of_dropping(graph_, id);
  if (advisers_.foresight != nullptr) {
    cost *= advisers_.foresight->cost_factor(id);
  }
  if (advisers_.copies != nullptr) {
    cost = std::min(cost, advisers_.copies->cost_of_return(id));
  }
  return advisers_.packing != nullptr ? std::min(cost, advisers_.packing->cost_of_return(id)) : cost;
}

double Evictor::score(ValueId id) {
  return score(id, cost_of_dropping(id));
}

double Evictor::score(ValueId id, double cost) const {
  return cost / (static_cast<double>(freed_bytes(id)) * weight(key(id)));
}

void Evictor::put_into_index(ValueId id) {
  if (!is_candidate(id)) {
    unindex(id);
    return;
  }
  if (states_[id].kept_last) {
    // The oldest first, whatever they cost: the outcome must not depend on times.
    index_of(id).insert(id, 1, key(id));
    return;
  }
  index_of(id).insert(id, cost_of_dropping(id) / static_cast<double>(freed_bytes(id)), key(id));
}

void Evictor::index_stale() {
  for (const ValueId id : stale_) {
    states_[id].in_stale = false;
    put_into_index(id);
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
      put_into_index(cursor_);
      ++refreshed;
    }
  }
}

// A key is smaller the longer ago the value was used, or, if the next use is known, the later that is.
double Evictor::key(ValueId id) const {
  if (states_[id].kept_last) {
    return static_cast<double>(needs_.age(graph_.value(id).producer));
  }
  return knows_uses() ? -advisers_.foresight->next_use(id) : states_[id].last_use;
}

double Evictor::weight(double key) const {
  const double distance = knows_uses() ? -key - advisers_.foresight->now() : time_ - key;
  return rule_.weight(std::max(0.0, distance), weighed_time());
}

double Evictor::weighed_time() const {
  return knows_uses() ? advisers_.foresight->step_length() : time_ - pressed_since_;
}

ValueId Evictor::best_of(CandidateIndex& index) {
  // Where next uses are known, a change of one marks its value: the key that the index has is still right.
  const auto key_now = [this](ValueId id) { return knows_uses() ? -std::numeric_limits<double>::infinity() : key(id); };
  const auto weight_of = [this](double key) { return weight(key); };
  const double most = rule_.most_weight(weighed_time());
  for (int i = 0; i < kMaxRescored; ++i) {
    const ValueId best = index.best(key_now, weight_of, most);
    if (best == kNoId) {
      return kNoId;
    }
    const int32_t bucket = index.bucket(best);
    put_into_index(best);
    if (index.bucket(best) <= bucket) {
      return best;
    }
  }
  return index.best(key_now, weight_of, most);
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
  index_stale();
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

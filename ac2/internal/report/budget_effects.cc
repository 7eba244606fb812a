#include "ac2/internal/report/budget_effects.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "ac2/internal/forms/functions_form.h"

namespace ac2::internal {

namespace {

using Key = std::tuple<Effect::Kind, std::string, std::string, std::string>;  // and op, place and form

class Effects {
 public:
  explicit Effects(const TraceLog& log) : log_(log) {}

  std::map<Key, Effect> take() {
    for (size_t i = 0; i < log_.events.size(); ++i) {
      add_event(i);
    }
    for (const TraceLog::Replay& replay : log_.replays) {
      add_replay(replay);
    }
    add_uses();
    return std::move(effects_);
  }

 private:
  Effect& effect_of(Effect::Kind kind, int64_t value) {
    const int64_t op = log_.values[value].op;
    const std::string name = op == TraceLog::kNone ? "" : log_.ops[op].name,
                      where = op == TraceLog::kNone ? "" : log_.ops[op].where;
    const FormPtr& packed = log_.values[value].form;
    // Functions of the program's have a number in place of a name.
    const bool has_form = kind == Effect::Kind::PACKED && packed != nullptr && as_functions(*packed) == nullptr;
    const std::string form = has_form ? packed->name() : "";
    const auto [place, is_new] = effects_.try_emplace(Key(kind, name, where, form));
    if (is_new) {
      place->second.kind = kind;
      place->second.op = name;
      place->second.where = where;
      place->second.form = form;
    }
    return place->second;
  }

  void add_event(size_t i) {
    const TraceLog::Event& event = log_.events[i];
    if (event.change != TraceLog::Change::EVICT && event.change != TraceLog::Change::OFFLOAD &&
        event.change != TraceLog::Change::PACK) {
      return;
    }
    const Effect::Kind kind = event.change == TraceLog::Change::EVICT     ? Effect::Kind::DROPPED
                              : event.change == TraceLog::Change::OFFLOAD ? Effect::Kind::OFFLOADED
                                                                          : Effect::Kind::PACKED;
    Effect& effect = effect_of(kind, event.value);
    effect.first = effect.values == 0 ? event.time : effect.first;
    effect.last = event.time;
    ++effect.values;
    effect.bytes += event.bytes;
    if (kind == Effect::Kind::PACKED && i + 1 < log_.events.size() && log_.events[i + 1].value == event.value) {
      effect.packed_bytes += log_.events[i + 1].bytes;
    }
    if (kind == Effect::Kind::DROPPED) {
      dropped_ops_.insert(log_.values[event.value].op);
    } else {
      moved_.insert_or_assign(event.value, kind);
    }
  }

  void add_replay(const TraceLog::Replay& replay) {
    if (replay.value != TraceLog::kNone) {
      replayed_for_[replay.value] += replay.span.length();
    }
    if (replay.op == TraceLog::kNone || !dropped_ops_.contains(replay.op)) {
      return;
    }
    Effect& effect = effect_of(Effect::Kind::DROPPED, log_.ops[replay.op].outputs.front());
    ++effect.times;
    effect.time += replay.span.length();
  }

  // The time of ops that run again while backward waits for a value is the cost of what was dropped.
  void add_uses() {
    std::map<int64_t, std::pair<int64_t, int64_t>> waited;  // by value: how often, and how long
    for (const TraceLog::Use& use : log_.uses) {
      if (moved_.contains(use.value)) {
        auto& [times, time] = waited[use.value];
        ++times;
        time += use.span.length();
      }
    }
    for (const auto& [value, sum] : waited) {
      Effect& effect = effect_of(moved_.at(value), value);
      effect.times += sum.first;
      effect.time += std::max<int64_t>(0, sum.second - replayed_for_[value]);
    }
  }

  const TraceLog& log_;
  std::map<Key, Effect> effects_;
  absl::flat_hash_set<int64_t> dropped_ops_;
  std::map<int64_t, Effect::Kind> moved_;    // by value
  std::map<int64_t, int64_t> replayed_for_;  // by value that autograd asked for: nanoseconds
};

void add(const Effect& effect, Effect& to) {
  to.values += effect.values;
  to.bytes += effect.bytes;
  to.packed_bytes += effect.packed_bytes;
  to.first = std::min(to.first, effect.first);
  to.last = std::max(to.last, effect.last);
  to.times += effect.times;
  to.time += effect.time;
}

}  // namespace

std::vector<Effect> budget_effects(c10::ArrayRef<TraceLog> logs) {
  std::map<Key, Effect> all;
  for (const TraceLog& log : logs) {
    for (auto& [key, effect] : Effects(log).take()) {
      const auto [place, is_new] = all.try_emplace(key, effect);
      if (!is_new) {
        add(effect, place->second);
      }
    }
  }
  std::vector<Effect> effects;
  for (auto& [key, effect] : all) {
    effects.push_back(std::move(effect));
  }
  std::stable_sort(effects.begin(), effects.end(), [](const Effect& a, const Effect& b) { return a.bytes > b.bytes; });
  return effects;
}

std::string kind_text(const Effect& effect) {
  switch (effect.kind) {
    case Effect::Kind::DROPPED:
      return "dropped";
    case Effect::Kind::OFFLOADED:
      return "offloaded";
    case Effect::Kind::PACKED:
      return effect.form.empty() ? "packed" : "packed (" + effect.form + ")";
  }
  return "";
}

}  // namespace ac2::internal

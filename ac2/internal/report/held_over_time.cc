#include "ac2/internal/report/held_over_time.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <unordered_map>
#include <utility>

namespace ac2::internal {

namespace {

using Change = TraceLog::Change;

// An event of one of the logs.
struct EventPlace {
  size_t log = 0;
  size_t event = 0;
};

bool comes(Change change) {
  return change == Change::HOLD || change == Change::REPLAY;
}
bool goes(Change change) {
  return change == Change::RELEASE || change == Change::DROP;
}

std::vector<EventPlace> in_order(c10::ArrayRef<TraceLog> logs) {
  std::vector<EventPlace> places;
  for (size_t log = 0; log < logs.size(); ++log) {
    for (size_t event = 0; event < logs[log].events.size(); ++event) {
      places.push_back({log, event});
    }
  }
  std::stable_sort(places.begin(), places.end(), [&](const EventPlace& a, const EventPlace& b) {
    return logs[a.log].events[a.event].time < logs[b.log].events[b.event].time;
  });
  return places;
}

// Sums by the op that computed a value.
class Groups {
 public:
  void add(const TraceLog& log, int64_t value, int64_t bytes) {
    const int64_t op = value == TraceLog::kNone ? TraceLog::kNone : log.values[value].op;
    const auto [place, is_new] =
        place_of_.try_emplace(op == TraceLog::kNone ? std::string() : log.ops[op].name, groups_.size());
    if (is_new) {
      groups_.push_back({place->first, 0});
      now_.push_back(0);
    }
    int64_t& now = now_[place->second];
    now += bytes;
    groups_[place->second].most = std::max(groups_[place->second].most, now);
  }

  std::vector<HeldOverTime::Group> take() {
    std::stable_sort(groups_.begin(), groups_.end(), [](const auto& a, const auto& b) { return a.most > b.most; });
    return std::move(groups_);
  }

 private:
  std::unordered_map<std::string, size_t> place_of_;
  std::vector<HeldOverTime::Group> groups_;
  std::vector<int64_t> now_;
};

std::vector<HeldOverTime::Part> parts_of(c10::ArrayRef<TraceLog> logs, int64_t end) {
  std::vector<const TraceLog*> timed;
  for (const TraceLog& log : logs) {
    if (log.timed) {
      timed.push_back(&log);
    }
  }
  std::stable_sort(timed.begin(), timed.end(),
                   [](const TraceLog* a, const TraceLog* b) { return a->begin < b->begin; });
  std::vector<HeldOverTime::Part> parts;
  for (const TraceLog* log : timed) {
    const std::string policy = log->scopes.empty() ? "" : log->scopes.front().policy;
    if (parts.empty() || parts.back().policy != policy) {
      if (!parts.empty()) {
        parts.back().end = log->begin;
      }
      parts.push_back({.policy = policy, .begin = log->begin, .end = end, .most = 0, .most_at = log->begin});
    }
    for (const TraceLog::Span& backward : log->backwards) {
      int64_t& first = parts.back().backward;
      first = first == TraceLog::kNone ? backward.begin : std::min(first, backward.begin);
    }
  }
  return parts;
}

int64_t end_of(c10::ArrayRef<TraceLog> logs) {
  int64_t end = 0;
  const auto add = [&end](const TraceLog::Span& span) { end = std::max({end, span.begin, span.end}); };
  for (const TraceLog& log : logs) {
    if (!log.timed) {
      continue;
    }
    end = std::max(end, log.events.empty() ? 0 : log.events.back().time);
    for (const TraceLog::Op& op : log.ops) add(op.forward);
    for (const TraceLog::Replay& replay : log.replays) add(replay.span);
    for (const TraceLog::Span& backward : log.backwards) add(backward);
  }
  return end;
}

// Whether room has been made for all that came to the region before: by log and event.
std::vector<std::vector<bool>> settled(c10::ArrayRef<TraceLog> logs) {
  std::vector<std::vector<bool>> all;
  for (const TraceLog& log : logs) {
    std::vector<bool>& of_log = all.emplace_back(log.events.size());
    for (size_t i = 0; i < log.events.size(); ++i) {
      of_log[i] = i + 1 == log.events.size() || comes(log.events[i + 1].change);
    }
  }
  return all;
}

void add_events(c10::ArrayRef<TraceLog> logs, HeldOverTime& result) {
  const std::vector<std::vector<bool>> is_settled = settled(logs);
  Groups groups;
  std::vector<int64_t> held_of(logs.size()), saved_of(logs.size()), shared_of(logs.size());
  int64_t held = 0, saved = 0, shared = 0, counted = 0;
  size_t part = 0;
  for (const TraceLog& log : logs) {
    result.counted.emplace_back(log.events.size());
  }
  for (const EventPlace& place : in_order(logs)) {
    const TraceLog& log = logs[place.log];
    const TraceLog::Event& event = log.events[place.event];
    const auto replace = [&](int64_t& sum, std::vector<int64_t>& of_log, int64_t now) {
      sum += now - of_log[place.log];
      of_log[place.log] = now;
    };
    replace(held, held_of, event.saved_bytes + event.recomputed_bytes);
    replace(saved, saved_of, event.saved_bytes);
    replace(shared, shared_of, event.shared_bytes);
    if (comes(event.change) || goes(event.change)) {
      groups.add(log, event.value, comes(event.change) ? event.bytes : -event.bytes);
    }
    result.most_saved = std::max(result.most_saved, saved);
    result.most_allocated = std::max(result.most_allocated, event.allocated);
    if (held > result.most) {
      result.most = held;
      result.most_at = event.time;
    }
    while (part + 1 < result.parts.size() && event.time >= result.parts[part + 1].begin) {
      ++part;
    }
    if (part < result.parts.size() && held > result.parts[part].most) {
      result.parts[part].most = held;
      result.parts[part].most_at = event.time;
    }
    const bool has_room =
        is_settled[place.log][place.event] || event.limit == TraceLog::kNone || held - shared <= event.limit;
    counted = has_room ? held - shared : std::min(counted, held - shared);
    result.counted[place.log][place.event] = counted;
    if (has_room && held > result.most_held) {
      result.most_held = held;
      result.most_held_at = event.time;
      result.shared_then = shared;
    }
    if (counted > result.most_counted) {
      result.most_counted = counted;
      result.most_counted_at = event.time;
    }
  }
  result.groups = groups.take();
}

}  // namespace

HeldOverTime held_over_time(c10::ArrayRef<TraceLog> logs) {
  HeldOverTime result;
  const auto is_bounded = [](const TraceLog& log) { return log.bound.kind != TraceLog::Bound::Kind::NONE; };
  result.shares_bound = !logs.empty() && std::all_of(logs.begin(), logs.end(), [&](const TraceLog& log) {
    return is_bounded(log) && log.bound.budget == logs.front().bound.budget;
  });
  const bool timed = std::any_of(logs.begin(), logs.end(), [](const TraceLog& log) { return log.timed; });
  if (timed) {
    result.begin = std::numeric_limits<int64_t>::max();
    for (const TraceLog& log : logs) {
      result.begin = log.timed ? std::min(result.begin, log.begin) : result.begin;
    }
    result.end = std::max(result.begin, end_of(logs));
    result.parts = parts_of(logs, result.end);
    add_events(logs, result);
    return result;
  }
  Groups groups;
  for (const TraceLog& log : logs) {
    result.counted.emplace_back(log.events.size());
    for (size_t i = 0; i < log.values.size(); ++i) {
      if (log.values[i].held_bytes > 0) {
        groups.add(log, static_cast<int64_t>(i), log.values[i].held_bytes);
      }
    }
  }
  result.groups = groups.take();
  return result;
}

}  // namespace ac2::internal

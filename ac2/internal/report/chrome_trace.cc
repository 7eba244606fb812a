#include "ac2/internal/report/chrome_trace.h"

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "ac2/policy.h"

namespace ac2::internal {

namespace {

using Json = nlohmann::ordered_json;

enum Track { kForward, kReplays, kReleases, kFirstBackward };

Json complete(const std::string& name, const char* category, int track, double begin, double length) {
  return {{"name", name}, {"cat", category}, {"ph", "X"}, {"pid", 0}, {"tid", track}, {"ts", begin}, {"dur", length}};
}

Json name_track(int track, const std::string& name) {
  return {{"name", "thread_name"}, {"ph", "M"}, {"pid", 0}, {"tid", track}, {"args", {{"name", name}}}};
}

std::string value_name(const TraceLog& log, int64_t value) {
  if (value == TraceLog::kNone) {
    return "";
  }
  const int64_t op = log.values[value].op;
  return op == TraceLog::kNone ? "from outside" : log.ops[op].name + " (op " + std::to_string(log.ops[op].index) + ")";
}

// A trace with a timeline.
class TimedEvents {
 public:
  TimedEvents(const TraceLog& log, Json& events) : log_(log), events_(events) {}

  void write() {
    events_.push_back(name_track(kForward, "forward"));
    events_.push_back(name_track(kReplays, "replays"));
    events_.push_back(name_track(kReleases, "releases"));
    for (const TraceLog::Op& op : log_.ops) {
      write_op(op);
    }
    for (const TraceLog::Replay& replay : log_.replays) {
      write_replay(replay);
    }
    write_backwards();
    for (const TraceLog::Event& event : log_.events) {
      write_bytes(event);
    }
  }

 private:
  double time(int64_t ns) const { return static_cast<double>(ns - log_.begin) * 1e-3; }
  Json span(const std::string& name, const char* category, int track, const TraceLog::Span& span) const {
    return complete(name, category, track, time(span.begin), static_cast<double>(span.length()) * 1e-3);
  }

  void write_op(const TraceLog::Op& op) {
    Json event = span(op.name, op.is_node ? "forward" : "not recorded", kForward, op.forward);
    event["args"] = {{"op", op.index}};
    if (op.is_node) {
      event["args"]["decision"] = to_string(op.decision);
      if (op.scope != TraceLog::kNone) {
        event["args"]["policy"] = log_.scopes[op.scope].policy;
        event["args"]["depth"] = log_.scopes[op.scope].depth;
      }
      int64_t bytes = 0;
      for (const int64_t output : op.outputs) {
        bytes += log_.values[output].bytes;
      }
      event["args"]["output_bytes"] = bytes;
    }
    events_.push_back(std::move(event));
  }

  void write_replay(const TraceLog::Replay& replay) {
    const bool known = replay.op != TraceLog::kNone;
    Json event = span(known ? log_.ops[replay.op].name : "op before the timeline", "replay", kReplays, replay.span);
    event["args"] = {{"op", known ? log_.ops[replay.op].index : TraceLog::kNone},
                     {"for", value_name(log_, replay.value)},
                     {"asked by", replay.consumer}};
    events_.push_back(std::move(event));
  }

  // Backwards on several threads may overlap without one being within the other, which one track cannot show. So each
  // gets the first track that is free.
  void write_backwards() {
    std::vector<int64_t> ends;
    for (const TraceLog::Span& backward : log_.backwards) {
      size_t lane = 0;
      while (lane < ends.size() && (ends[lane] == TraceLog::kNone || ends[lane] > backward.begin)) {
        ++lane;
      }
      const int track = kFirstBackward + static_cast<int>(lane);
      if (lane == ends.size()) {
        ends.emplace_back();
        events_.push_back(name_track(track, lane == 0 ? "backward" : "backward " + std::to_string(lane + 1)));
      }
      ends[lane] = backward.end;
      events_.push_back(span("backward", "backward", track, backward));
    }
  }

  void write_bytes(const TraceLog::Event& event) {
    const bool counts = event.change != TraceLog::Change::COPY && event.change != TraceLog::Change::EVICT;
    const bool comes = event.change == TraceLog::Change::HOLD || event.change == TraceLog::Change::REPLAY;
    if (!comes) {
      events_.push_back({{"name", std::string(to_string(event.change)) + " " + value_name(log_, event.value)},
                         {"cat", "release"},
                         {"ph", "i"},
                         {"s", "t"},
                         {"pid", 0},
                         {"tid", kReleases},
                         {"ts", time(event.time)},
                         {"args", {{"bytes", event.bytes}}}});
    }
    if (counts) {
      events_.push_back({{"name", "bytes held"},
                         {"ph", "C"},
                         {"pid", 0},
                         {"ts", time(event.time)},
                         {"args", {{"saved", event.saved_bytes}, {"replayed", event.recomputed_bytes}}}});
    }
  }

  const TraceLog& log_;
  Json& events_;
};

// A trace without a timeline: the number of an op stands for the time.
void write_logical(const TraceLog& log, Json& events) {
  events.push_back(name_track(kForward, "forward"));
  int64_t held = 0;
  for (const TraceLog::Op& op : log.ops) {
    int64_t output_bytes = 0;
    int64_t saved_bytes = 0;
    for (const int64_t output : op.outputs) {
      output_bytes += log.values[output].bytes;
      saved_bytes += log.values[output].held_bytes;
    }
    Json event = complete(op.name, "forward", kForward, static_cast<double>(op.index), 1);
    event["args"] = {{"decision", to_string(op.decision)},
                     {"output_bytes", output_bytes},
                     {"saved_bytes", saved_bytes},
                     {"replays", op.replays}};
    events.push_back(std::move(event));
    held += saved_bytes;
    events.push_back(
        {{"name", "saved results"}, {"ph", "C"}, {"pid", 0}, {"ts", op.index}, {"args", {{"bytes", held}}}});
  }
}

}  // namespace

std::string to_chrome_trace(const TraceLog& log) {
  Json events = Json::array();
  events.push_back({{"name", "process_name"}, {"ph", "M"}, {"pid", 0}, {"args", {{"name", "ac2 region"}}}});
  if (log.timed) {
    TimedEvents(log, events).write();
  } else {
    write_logical(log, events);
  }
  // The user's own ops may have any name, even one that is no UTF-8.
  return Json{{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events)}}.dump(-1, ' ', false,
                                                                                  Json::error_handler_t::replace) +
         "\n";
}

}  // namespace ac2::internal

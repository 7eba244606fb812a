#include "ac2/internal/report/report_data.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_replace.h"
#include "ac2/internal/report/long_replays.h"
#include "ac2/policy.h"

namespace ac2::internal {

namespace {

using Json = nlohmann::ordered_json;

// Rows are arrays whose columns are named once, which takes half the bytes of objects.
struct Table {
  std::vector<std::string> columns;
  Json rows = Json::array();
};

Json to_json(Table table) {
  return {{"columns", std::move(table.columns)}, {"rows", std::move(table.rows)}};
}

class RegionJson {
 public:
  RegionJson(const TraceLog& log, int64_t zero) : log_(log), zero_(zero) {}

  Json json() const {
    return {{"timed", log_.timed},
            {"begin", time(log_.begin)},
            {"closed", time(log_.closed)},
            {"stats", stats()},
            {"scopes", scopes()},
            {"ops", ops()},
            {"values", values()},
            {"replays", replays()},
            {"events", events()},
            {"backwards", backwards()},
            {"long_replays", long_replays()}};
  }

 private:
  // Nanoseconds since the first region began; null where there is none.
  Json time(int64_t ns) const { return !log_.timed || ns == TraceLog::kNone ? Json() : Json(ns - zero_); }

  Json stats() const {
    const TraceStats& stats = log_.stats;
    return {{"recorded_ops", stats.recorded_ops},     {"saved_bytes", stats.saved_bytes},
            {"recomputed_ops", stats.recomputed_ops}, {"recomputed_bytes", stats.recomputed_bytes},
            {"copied_bytes", stats.copied_bytes},     {"live_nodes", stats.live_nodes},
            {"evicted_values", stats.evicted_values}, {"offloaded_bytes", stats.offloaded_bytes}};
  }

  Json scopes() const {
    Table table{.columns = {"depth", "policy"}};
    for (const TraceLog::Scope& scope : log_.scopes) {
      table.rows.push_back({scope.depth, scope.policy});
    }
    return to_json(std::move(table));
  }

  Json ops() const {
    Table table{.columns = {"index", "name", "node", "replayable", "threw", "decision", "scope", "begin", "end",
                            "replays", "inputs", "outputs"}};
    for (const TraceLog::Op& op : log_.ops) {
      table.rows.push_back({op.index, op.name, op.is_node, op.replayable, op.threw, to_string(op.decision), op.scope,
                            time(op.forward.begin), time(op.forward.end), op.replays, op.inputs, op.outputs});
    }
    return to_json(std::move(table));
  }

  Json values() const {
    Table table{.columns = {"op", "bytes", "shape", "saved", "source", "held_bytes", "last_held_bytes", "hooks"}};
    for (const TraceLog::Value& value : log_.values) {
      table.rows.push_back({value.op, value.bytes, value.shape, value.saved, to_string(value.source), value.held_bytes,
                            value.last_held_bytes, value.all_hooks});
    }
    return to_json(std::move(table));
  }

  Json replays() const {
    Table table{.columns = {"op", "value", "consumer", "begin", "end"}};
    for (const TraceLog::Replay& replay : log_.replays) {
      table.rows.push_back({replay.op, replay.value, replay.consumer, time(replay.span.begin), time(replay.span.end)});
    }
    return to_json(std::move(table));
  }

  Json events() const {
    Table table{.columns = {"time", "value", "change", "bytes"}};
    for (const TraceLog::Event& event : log_.events) {
      table.rows.push_back({time(event.time), event.value, to_string(event.change), event.bytes});
    }
    return to_json(std::move(table));
  }

  Json backwards() const {
    Table table{.columns = {"begin", "end"}};
    for (const TraceLog::Span& backward : log_.backwards) {
      table.rows.push_back({time(backward.begin), time(backward.end)});
    }
    return to_json(std::move(table));
  }

  Json long_replays() const {
    Table table{.columns = {"value", "ops", "first"}};
    for (const LongReplay& replay : internal::long_replays(log_)) {
      table.rows.push_back({replay.value, replay.ops, replay.first});
    }
    return to_json(std::move(table));
  }

  const TraceLog& log_;
  int64_t zero_;
};

}  // namespace

std::string report_data(const std::vector<TraceLog>& logs) {
  int64_t zero = std::numeric_limits<int64_t>::max();
  for (const TraceLog& log : logs) {
    zero = log.timed ? std::min(zero, log.begin) : zero;
  }
  Json regions = Json::array();
  for (const TraceLog& log : logs) {
    regions.push_back(RegionJson(log, zero).json());
  }
  // The user's own ops may have any name, even one that is no UTF-8, or "</script>".
  return absl::StrReplaceAll(Json{{"regions", std::move(regions)}}.dump(-1, ' ', false, Json::error_handler_t::replace),
                             {{"<", "\\u003c"}});
}

}  // namespace ac2::internal

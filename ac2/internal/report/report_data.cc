#include "ac2/internal/report/report_data.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "ac2/internal/report/budget_effects.h"
#include "ac2/internal/report/explain_budget.h"
#include "ac2/internal/report/explain_modules.h"
#include "ac2/internal/report/explain_text.h"
#include "ac2/internal/report/held_over_time.h"
#include "ac2/internal/report/holdings.h"
#include "ac2/internal/report/long_replays.h"
#include "ac2/internal/report/module_groups.h"
#include "ac2/internal/report/op_groups.h"
#include "ac2/internal/report/report_tiles.h"
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
  // `counted` is by event, `group_of` by op.
  RegionJson(const TraceLog& log, int64_t zero, const std::map<const void*, int64_t>& number_of,
             const std::vector<int64_t>& counted, const std::vector<size_t>& group_of)
      : log_(log), zero_(zero), number_of_(number_of), counted_(counted), group_of_(group_of) {}

  Json json() const {
    return {{"timed", log_.timed},
            {"begin", time(log_.begin)},
            {"closed", time(log_.closed)},
            {"stats", stats()},
            {"bound", bound()},
            {"limits", limits()},
            {"scopes", scopes()},
            {"ops", ops()},
            {"values", values()},
            {"replays", replays()},
            {"events", events()},
            {"backwards", backwards()},
            {"long_replays", long_replays()},
            {"modules", modules()},
            {"keeping_policy", absl::StrJoin(keeping_policy_lines(log_), "\n")}};
  }

 private:
  // Nanoseconds since the first region began; null where there is none.
  Json time(int64_t ns) const { return !log_.timed || ns == TraceLog::kNone ? Json() : Json(ns - zero_); }

  Json stats() const {
    const TraceStats& stats = log_.stats;
    return {{"recorded_ops", stats.recorded_ops},      {"saved_bytes", stats.saved_bytes},
            {"recomputed_ops", stats.recomputed_ops},  {"recomputed_bytes", stats.recomputed_bytes},
            {"copied_bytes", stats.copied_bytes},      {"live_nodes", stats.live_nodes},
            {"evicted_values", stats.evicted_values},  {"packed_values", stats.packed_values},
            {"offloaded_bytes", stats.offloaded_bytes}};
  }

  // Null if nothing limits what is held.
  Json bound() const {
    const TraceLog::Bound& bound = log_.bound;
    if (!is_bounded()) {
      return {};
    }
    return {{"kind", to_string(bound.kind)},
            {"bytes", bound.bytes == TraceLog::kNone ? Json() : Json(bound.bytes)},
            {"budget", number_of_.at(bound.budget)},
            {"shared_bytes", log_.shared_bytes}};
  }

  // The limit of the bytes that count, each time that it changes; null while there is none.
  Json limits() const {
    Table table{.columns = {"time", "bytes"}};
    const bool is_peak = log_.bound.kind == TraceLog::Bound::Kind::PEAK;
    int64_t last = TraceLog::kNone;
    for (const TraceLog::Event& event : log_.events) {
      const int64_t limit = is_peak ? log_.bound.bytes : event.limit;
      if (limit != last) {
        table.rows.push_back({time(event.time), limit == TraceLog::kNone ? Json() : Json(limit)});
        last = limit;
      }
    }
    return to_json(std::move(table));
  }

  Json scopes() const {
    Table table{.columns = {"depth", "policy"}};
    for (const TraceLog::Scope& scope : log_.scopes) {
      table.rows.push_back({scope.depth, scope.policy});
    }
    return to_json(std::move(table));
  }

  Json ops() const {
    Table table{.columns = {"index", "name", "where", "node", "replayable", "threw", "decision", "scope", "begin",
                            "end", "replays", "inputs", "outputs", "group", "bytes", "saved", "replay_time",
                            "evictions"}};
    const std::vector<OpSum> sums = op_sums(log_);
    for (size_t i = 0; i < log_.ops.size(); ++i) {
      const TraceLog::Op& op = log_.ops[i];
      table.rows.push_back({op.index, op.name, op.where, op.is_node, op.replayable, op.threw, to_string(op.decision),
                            op.scope, time(op.forward.begin), time(op.forward.end), op.replays, op.inputs, op.outputs,
                            group_of_[i], sums[i].bytes, sums[i].saved, sums[i].replay_time, sums[i].evictions});
    }
    return to_json(std::move(table));
  }

  Json values() const {
    Table table{
        .columns = {"op", "bytes", "shape", "name", "saved", "source", "held_bytes", "last_held_bytes", "hooks"}};
    for (const TraceLog::Value& value : log_.values) {
      table.rows.push_back({value.op, value.bytes, value.shape, value.name, value.saved, to_string(value.source),
                            value.held_bytes, value.last_held_bytes, value.all_hooks});
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
    const bool is_peak = log_.bound.kind == TraceLog::Bound::Kind::PEAK;
    if (is_bounded()) {
      table.columns.emplace_back("shared");
      table.columns.emplace_back("counted");
    }
    if (is_peak) {
      table.columns.emplace_back("allocated");
    }
    for (size_t i = 0; i < log_.events.size(); ++i) {
      const TraceLog::Event& event = log_.events[i];
      Json row = {time(event.time), event.value, to_string(event.change), event.bytes};
      if (is_bounded()) {
        row.push_back(event.shared_bytes);
        row.push_back(counted_[i]);
      }
      if (is_peak) {
        row.push_back(event.allocated);
      }
      table.rows.push_back(std::move(row));
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

  Json modules() const {
    Table table{.columns = {"pattern", "modules", "ops", "held_bytes", "replays"}};
    for (const ModuleGroup& group : module_groups(log_, Holdings(log_))) {
      table.rows.push_back({module_group_name(group), group.modules, group.ops, group.held_bytes, group.replays});
    }
    return to_json(std::move(table));
  }

  bool is_bounded() const { return log_.bound.kind != TraceLog::Bound::Kind::NONE; }

  const TraceLog& log_;
  const int64_t zero_;
  const std::map<const void*, int64_t>& number_of_;  // by budget
  const std::vector<int64_t>& counted_;
  const std::vector<size_t>& group_of_;
};

// The part of the data that is about all regions together.
class StepJson {
 public:
  explicit StepJson(const std::vector<TraceLog>& logs)
      : logs_(logs), held_(held_over_time(logs)), groups_(op_groups(logs)) {
    for (const TraceLog& log : logs) {
      number_of_.emplace(log.bound.budget, static_cast<int64_t>(number_of_.size()));
    }
  }

  Json json() const {
    Json tiles = Json::array();
    for (const ReportTile& tile : report_tiles(logs_, held_)) {
      tiles.push_back({{"label", tile.label}, {"value", tile.value}, {"detail", tile.detail}});
    }
    return {{"title", logs_.size() > 1 ? "What the regions did" : "What the region did"},
            {"subtitle", report_subtitle(logs_, held_)},
            {"outside", kOutside},
            {"tiles", std::move(tiles)},
            {"budget", absl::StrJoin(budget_sentences(logs_, held_), " ")},
            {"bound", held_.shares_bound ? Json(to_string(logs_.back().bound.kind)) : Json()},
            {"most", held_.most},
            {"most_allocated", held_.most_allocated},
            {"end", held_.end - held_.begin},
            {"kinds", kinds()},
            {"parts", parts()},
            {"op_groups", op_groups_table()},
            {"effects", effects()},
            {"regions", regions()}};
  }

 private:
  Json time(int64_t ns) const { return ns == TraceLog::kNone ? Json() : Json(ns - held_.begin); }

  Json kinds() const {
    Table table{.columns = {"op", "most"}};
    for (const HeldOverTime::Group& group : held_.groups) {
      table.rows.push_back({group.op, group.most});
    }
    return to_json(std::move(table));
  }

  Json parts() const {
    Table table{.columns = {"policy", "begin", "end", "most", "most_at", "backward"}};
    for (const HeldOverTime::Part& part : held_.parts) {
      table.rows.push_back(
          {part.policy, time(part.begin), time(part.end), part.most, time(part.most_at), time(part.backward)});
    }
    return to_json(std::move(table));
  }

  Json op_groups_table() const {
    Table table{
        .columns = {"name", "decision", "by", "calls", "saved", "forward", "replays", "replay_time", "evictions"}};
    for (const OpGroup& group : groups_.groups) {
      table.rows.push_back({group.name, group.decision, group.by, group.calls, group.sum.saved, group.forward_time,
                            group.sum.replays, group.sum.replay_time, group.sum.evictions});
    }
    return to_json(std::move(table));
  }

  Json effects() const {
    Table table{
        .columns = {"kind", "op", "where", "values", "bytes", "packed_bytes", "first", "last", "times", "time"}};
    for (const Effect& effect : budget_effects(logs_)) {
      table.rows.push_back({kind_text(effect), effect.op, effect.where, effect.values, effect.bytes,
                            effect.packed_bytes, time(effect.first), time(effect.last), effect.times, effect.time});
    }
    return to_json(std::move(table));
  }

  Json regions() const {
    Json regions = Json::array();
    for (size_t i = 0; i < logs_.size(); ++i) {
      regions.push_back(RegionJson(logs_[i], held_.begin, number_of_, held_.counted[i], groups_.group_of[i]).json());
    }
    return regions;
  }

  const std::vector<TraceLog>& logs_;
  const HeldOverTime held_;
  const OpGroups groups_;
  std::map<const void*, int64_t> number_of_;  // by budget
};

}  // namespace

std::string report_data(const std::vector<TraceLog>& logs) {
  // The user's own ops may have any name, even one that is no UTF-8, or "</script>".
  return absl::StrReplaceAll(StepJson(logs).json().dump(-1, ' ', false, Json::error_handler_t::replace),
                             {{"<", "\\u003c"}});
}

}  // namespace ac2::internal

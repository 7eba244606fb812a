#include "ac2/internal/report/report_tiles.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "ac2/internal/report/explain_budget.h"
#include "ac2/internal/report/op_groups.h"
#include "ac2/internal/report/units.h"

namespace ac2::internal {

namespace {

bool is_timed(c10::ArrayRef<TraceLog> logs) {
  return std::any_of(logs.begin(), logs.end(), [](const TraceLog& log) { return log.timed; });
}

int64_t sum(c10::ArrayRef<TraceLog> logs, int64_t TraceStats::*member) {
  int64_t all = 0;
  for (const TraceLog& log : logs) {
    all += log.stats.*member;
  }
  return all;
}

std::string share_of_forward(c10::ArrayRef<TraceLog> logs) {
  const int64_t forward = forward_time(logs);
  return forward == 0
             ? ""
             : absl::StrCat(std::llround(100.0 * static_cast<double>(replay_time(logs)) / static_cast<double>(forward)),
                            " % of forward's ", time_text(forward));
}

}  // namespace

std::vector<ReportTile> report_tiles(c10::ArrayRef<TraceLog> logs, const HeldOverTime& held) {
  const bool timed = is_timed(logs);
  const std::string held_now = bytes_text(sum(logs, &TraceStats::saved_bytes));
  std::vector<ReportTile> tiles;
  if (timed) {
    tiles.push_back(
        {"Most held at once", bytes_text(held.most),
         absl::StrCat("at ", time_text(held.most_at - held.begin), ", with replayed results",
                      held.shares_bound ? ", what does not count, and what room was still to be made for" : "")});
    tiles.push_back({"Most saved at once", bytes_text(held.most_saved), held_now + " held now"});
  } else {
    tiles.push_back({"Held now", held_now, "inputs that ops need included"});
  }
  tiles.push_back({"Ops replayed", absl::StrCat(sum(logs, &TraceStats::recomputed_ops)),
                   absl::StrCat("of ", count_text(sum(logs, &TraceStats::recorded_ops), "op"), " recorded")});
  if (timed) {
    tiles.push_back({"Time of replays", time_text(replay_time(logs)), share_of_forward(logs)});
  }
  if (const int64_t evicted = sum(logs, &TraceStats::evicted_values); evicted > 0) {
    tiles.push_back({"Evicted", count_text(evicted, "value"), "dropped for a memory budget"});
  }
  if (const int64_t packed = sum(logs, &TraceStats::packed_values); packed > 0) {
    tiles.push_back({"Packed", count_text(packed, "value"), "into a form, for a memory budget"});
  }
  tiles.push_back({"Copied", bytes_text(sum(logs, &TraceStats::copied_bytes)), "before being overwritten"});
  if (timed && held.shares_bound) {
    const TraceLog::Bound& bound = logs.back().bound;
    const bool is_peak = bound.kind == TraceLog::Bound::Kind::PEAK;
    tiles.push_back({is_peak ? "Most allocated at once" : "Most counted at once",
                     bytes_text(is_peak ? held.most_allocated : held.most_counted),
                     "of a memory budget: " + bound_name(bound)});
  }
  return tiles;
}

std::string report_subtitle(c10::ArrayRef<TraceLog> logs, const HeldOverTime& held) {
  const std::string what = absl::StrCat(count_text(static_cast<int64_t>(logs.size()), "region"), ", ",
                                        count_text(sum(logs, &TraceStats::recorded_ops), "op"));
  if (!is_timed(logs)) {
    return what + ". No timeline was kept: this is what the trace holds now.";
  }
  const auto untimed = std::count_if(logs.begin(), logs.end(), [](const TraceLog& log) { return !log.timed; });
  return absl::StrCat(
      what, ", ", time_text(std::max<int64_t>(0, held.end - held.begin)), " from the first op to the last release",
      untimed > 0 ? absl::StrCat(". ", untimed, " of them kept no timeline: their ops and values are in ",
                                 "the sums, and what was replayed, dropped and when is not in the tables")
                  : "");
}

}  // namespace ac2::internal

#include "ac2/internal/report/explain_replays.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ac2/internal/report/explain_text.h"
#include "ac2/internal/report/long_replays.h"
#include "ac2/internal/report/op_groups.h"
#include "ac2/internal/report/units.h"

namespace ac2::internal {

namespace {

// How many lines there are before "... and N more".
constexpr size_t kReplayLines = 9;
constexpr size_t kLongReplayLines = 5;
constexpr size_t kSavingLines = 8;

// The replays of all ops of one name.
struct Replayed {
  std::string name;
  int64_t count = 0;
  int64_t time = 0;
  std::vector<std::string> consumers;
};

// The most time comes first, or the largest count where there is no timeline.
std::vector<Replayed> replayed_by_name(const TraceLog& log) {
  std::map<std::string, Replayed> by_name;
  const std::vector<OpSum> sums = op_sums(log);
  for (size_t i = 0; i < log.ops.size(); ++i) {
    if (sums[i].replays > 0 || sums[i].replay_time > 0) {
      Replayed& replayed = by_name[log.ops[i].name];
      replayed.count += sums[i].replays;
      replayed.time += sums[i].replay_time;
    }
  }
  for (const TraceLog::Replay& replay : log.replays) {
    if (replay.op != TraceLog::kNone) {
      add_once(by_name[log.ops[replay.op].name].consumers, replay.consumer);
    }
  }
  std::vector<Replayed> replayed;
  for (auto& [name, entry] : by_name) {
    entry.name = name;
    replayed.push_back(std::move(entry));
  }
  std::stable_sort(replayed.begin(), replayed.end(), [](const Replayed& a, const Replayed& b) {
    return a.time != b.time ? a.time > b.time : a.count > b.count;
  });
  return replayed;
}

}  // namespace

std::vector<std::string> replay_lines(const TraceLog& log) {
  const std::vector<Replayed> replayed = replayed_by_name(log);
  if (replayed.empty()) {
    return {};
  }
  int64_t rest = 0;  // replays of the names that get no line
  for (size_t i = 0; i < replayed.size(); ++i) {
    rest += i < kReplayLines ? 0 : replayed[i].count;
  }
  std::vector<std::string> lines;
  lines.push_back(absl::StrCat("Recomputed: ", count_text(log.stats.recomputed_ops, "op"),
                               log.timed ? ", " + time_text(replay_time(log)) : std::string()));
  for (size_t i = 0; i < std::min(replayed.size(), kReplayLines); ++i) {
    const Replayed& entry = replayed[i];
    lines.push_back(absl::StrCat("  ", pad(log.timed ? time_text(entry.time) : count_text(entry.count, "time"), 10),
                                 "  ", entry.name, log.timed ? absl::StrCat(" x", entry.count) : std::string(),
                                 entry.consumers.empty() ? "" : ": for ", some_of(entry.consumers)));
  }
  if (replayed.size() > kReplayLines) {
    lines.push_back(
        absl::StrCat("  ... and ", replayed.size() - kReplayLines, " more kinds of op, ", rest, " replays"));
  }
  return lines;
}

std::vector<std::string> long_replay_lines(const TraceLog& log) {
  const std::vector<LongReplay> replays = long_replays(log);
  if (replays.empty()) {
    return {};
  }
  std::vector<std::string> lines;
  lines.emplace_back("A replay reaches far back for:");
  for (size_t i = 0; i < std::min(replays.size(), kLongReplayLines); ++i) {
    const TraceLog::Value& value = log.values[replays[i].value];
    lines.push_back(absl::StrCat("  ", pad(bytes_text(value.bytes), 10), "  ", op_name(log, value.op),
                                 value.shape.empty() ? "" : " ", value.shape, ": replays ",
                                 count_text(replays[i].ops, "op"), ", from ", op_name(log, replays[i].first), " on"));
  }
  if (replays.size() > kLongReplayLines) {
    lines.push_back(absl::StrCat("  ... and ", replays.size() - kLongReplayLines, " more"));
  }
  return lines;
}

std::vector<std::string> saving_lines(const TraceLog& log, const Holdings& holdings) {
  const std::vector<Holdings::Saving> savings = holdings.savings();
  if (savings.empty()) {
    return {};
  }
  std::vector<std::string> lines;
  lines.emplace_back("Recomputing one of these instead of saving it would save, and cost in a backward:");
  for (size_t i = 0; i < std::min(savings.size(), kSavingLines); ++i) {
    const Holdings::Saving& saving = savings[i];
    std::string text =
        absl::StrCat("  ", pad(bytes_text(saving.bytes), 10), "  ", op_name(log, log.values[saving.value].op), ": ");
    absl::StrAppend(
        &text, saving.ops == 0 ? "nothing, it is replayed for another result anyway" : count_text(saving.ops, "op"),
        saving.ops > 0 && log.timed ? ", " + time_text(saving.time) : std::string());
    if (saving.instead > 0) {
      absl::StrAppend(&text, "; holds ", bytes_text(saving.instead), " of inputs instead");
    }
    lines.push_back(text);
  }
  if (savings.size() > kSavingLines) {
    lines.push_back(absl::StrCat("  ... and ", savings.size() - kSavingLines, " more"));
  }
  return lines;
}

}  // namespace ac2::internal

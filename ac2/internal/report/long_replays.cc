#include "ac2/internal/report/long_replays.h"

#include <algorithm>
#include <map>

namespace ac2::internal {

namespace {

void count(std::map<int64_t, LongReplay>& replays, int64_t value, int64_t op) {
  const auto [it, is_new] = replays.emplace(value, LongReplay{value, 0, op});
  ++it->second.ops;
  it->second.first = std::min(it->second.first, op);
}

// Counts the replays that have happened. Only a timeline knows for which values they were.
void count_past(const TraceLog& log, std::map<int64_t, LongReplay>& replays) {
  for (const TraceLog::Replay& replay : log.replays) {
    if (replay.op != TraceLog::kNone && replay.value != TraceLog::kNone) {
      count(replays, replay.value, replay.op);
    }
  }
}

void count_to_come(const TraceLog& log, std::map<int64_t, LongReplay>& replays) {
  const auto is_missing = [&](int64_t value) {
    return !log.values[value].saved && log.values[value].held_bytes == 0 && log.values[value].op != TraceLog::kNone;
  };
  std::vector<int64_t> wanted;
  for (size_t i = 0; i < log.values.size(); ++i) {
    if (log.values[i].hooks > 0 && is_missing(static_cast<int64_t>(i))) {
      wanted.push_back(static_cast<int64_t>(i));
    }
  }
  std::stable_sort(wanted.begin(), wanted.end(),
                   [&](int64_t a, int64_t b) { return log.values[a].op < log.values[b].op; });
  std::vector<bool> seen(log.ops.size());
  std::vector<int64_t> work;
  for (const int64_t value : wanted) {
    replays.erase(value);
    work.push_back(log.values[value].op);
    while (!work.empty()) {
      const int64_t op = work.back();
      work.pop_back();
      if (seen[op]) {
        continue;
      }
      seen[op] = true;
      count(replays, value, op);
      for (const int64_t input : log.ops[op].inputs) {
        if (is_missing(input)) {
          work.push_back(log.values[input].op);
        }
      }
    }
  }
}

}  // namespace

std::vector<LongReplay> long_replays(const TraceLog& log, int64_t least) {
  std::map<int64_t, LongReplay> by_value;
  count_past(log, by_value);
  count_to_come(log, by_value);
  std::vector<LongReplay> replays;
  for (const auto& [value, replay] : by_value) {
    if (replay.ops >= least) {
      replays.push_back(replay);
    }
  }
  std::stable_sort(replays.begin(), replays.end(),
                   [](const LongReplay& a, const LongReplay& b) { return a.ops > b.ops; });
  return replays;
}

}  // namespace ac2::internal

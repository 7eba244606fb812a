#include "ac2/internal/report/op_groups.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ac2/internal/report/explain_text.h"
#include "ac2/policy.h"

namespace ac2::internal {

namespace {

std::string decision_of(const TraceLog::Op& op) {
  return op.is_node ? to_string(op.decision) : op.outputs.empty() ? "" : kKeptByReference;
}

std::string decided_by(const TraceLog& log, const TraceLog::Op& op) {
  if (!op.is_node) {
    return "";
  }
  const auto find = [&](auto&& wanted) {
    const auto found =
        std::find_if(op.outputs.begin(), op.outputs.end(), [&](int64_t value) { return wanted(log.values[value]); });
    return found == op.outputs.end() ? nullptr : &log.values[*found];
  };
  const TraceLog::Value* const other =
      find([](const TraceLog::Value& value) { return value.source != TraceLog::Source::OP; });
  if (other != nullptr) {
    return other->source == TraceLog::Source::TAG ? "a tag" : "the name of a tensor";
  }
  if (!PolicyDecision(op.decision).saves() &&
      find([](const TraceLog::Value& value) { return value.saved && value.last_held_bytes > 0; }) != nullptr) {
    return absl::StrCat("none: ", kNotReplayable);
  }
  return op.scope == TraceLog::kNone ? "" : scope_name(log.scopes[op.scope]);
}

void add(const OpSum& sum, OpSum& to) {
  to.bytes += sum.bytes;
  to.saved += sum.saved;
  to.replays += sum.replays;
  to.replay_time += sum.replay_time;
  to.evictions += sum.evictions;
}

}  // namespace

std::vector<OpSum> op_sums(const TraceLog& log) {
  std::vector<OpSum> sums(log.ops.size());
  for (size_t i = 0; i < log.ops.size(); ++i) {
    sums[i].replays = log.ops[i].replays;
    for (const int64_t output : log.ops[i].outputs) {
      sums[i].bytes += log.values[output].bytes;
      sums[i].saved += log.values[output].last_held_bytes;
    }
  }
  for (const TraceLog::Replay& replay : log.replays) {
    if (replay.op != TraceLog::kNone) {
      sums[replay.op].replay_time += replay.span.length();
    }
  }
  for (const TraceLog::Event& event : log.events) {
    if (event.change == TraceLog::Change::EVICT && log.values[event.value].op != TraceLog::kNone) {
      ++sums[log.values[event.value].op].evictions;
    }
  }
  return sums;
}

OpGroups op_groups(c10::ArrayRef<TraceLog> logs) {
  OpGroups result;
  std::map<std::tuple<std::string, std::string, std::string>, size_t> place_of;
  OpGroup outside;
  outside.decision = kKeptByReference;
  for (const TraceLog& log : logs) {
    const std::vector<OpSum> sums = op_sums(log);
    std::vector<size_t>& group_of = result.group_of.emplace_back();
    for (size_t i = 0; i < log.ops.size(); ++i) {
      const TraceLog::Op& op = log.ops[i];
      OpGroup group;
      group.name = op.name;
      group.decision = decision_of(op);
      group.by = decided_by(log, op);
      const auto [place, is_new] =
          place_of.try_emplace(std::tuple(group.name, group.decision, group.by), result.groups.size());
      if (is_new) {
        result.groups.push_back(std::move(group));
      }
      OpGroup& all = result.groups[place->second];
      ++all.calls;
      all.forward_time += op.forward.length();
      add(sums[i], all.sum);
      group_of.push_back(place->second);
    }
    for (const TraceLog::Value& value : log.values) {
      outside.sum.saved += value.op == TraceLog::kNone ? value.last_held_bytes : 0;
    }
  }
  if (outside.sum.saved > 0) {
    result.groups.push_back(std::move(outside));
  }
  return result;
}

int64_t forward_time(c10::ArrayRef<TraceLog> logs) {
  int64_t time = 0;
  for (const TraceLog& log : logs) {
    for (const TraceLog::Op& op : log.ops) {
      time += log.timed ? op.forward.length() : 0;
    }
  }
  return time;
}

int64_t replay_time(c10::ArrayRef<TraceLog> logs) {
  int64_t time = 0;
  for (const TraceLog& log : logs) {
    for (const OpSum& sum : op_sums(log)) {
      time += sum.replay_time;
    }
  }
  return time;
}

}  // namespace ac2::internal

#include "ac2/internal/report/explain_held.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ac2/internal/report/explain_text.h"
#include "ac2/internal/report/units.h"
#include "ac2/policy.h"

namespace ac2::internal {

namespace {

// How many lines there are before "... and N more".
constexpr size_t kHeldLines = 12;

using Users = std::vector<std::vector<std::string>>;

// By value: names of the autograd nodes that unpacked it.
Users users_of(const TraceLog& log) {
  Users users(log.values.size());
  for (const TraceLog::Use& use : log.uses) {
    add_once(users[use.value], use.consumer);
  }
  return users;
}

class HeldText {
 public:
  HeldText(const TraceLog& log, const Holdings& holdings)
      : log_(log), holdings_(holdings), replayed_by_(log.values.size()), users_(users_of(log)) {
    for (int64_t i = 0; i < static_cast<int64_t>(log.ops.size()); ++i) {
      if (!is_recomputed(log.ops[i])) {
        continue;
      }
      for (const int64_t input : log.ops[i].inputs) {
        std::vector<int64_t>& ops = replayed_by_[input];
        if (ops.empty() || ops.back() != i) {
          ops.push_back(i);
        }
      }
    }
  }

  std::string of(const Holdings::Holding& held) const {
    const TraceLog::Value& value = log_.values[held.value];
    std::string text = absl::StrCat("  ", pad(bytes_text(held.bytes), 10), "  ",
                                    value.op == TraceLog::kNone ? "" : op_name(log_, value.op) + " ", value.shape);
    if (!value.name.empty()) {
      absl::StrAppend(&text, value.shape.empty() ? "\"" : " \"", value.name, "\"");
    }
    if (value.op != TraceLog::kNone && !log_.ops[value.op].where.empty()) {
      absl::StrAppend(&text, " ", log_.ops[value.op].where);
    }
    const std::string whom = for_whom(held.value);
    absl::StrAppend(&text, value.shape.empty() && value.name.empty() ? "" : ": ", why(value), whom.empty() ? "" : "; ",
                    whom);
    return text;
  }

 private:
  bool is_recomputed(const TraceLog::Op& op) const {
    return std::any_of(op.outputs.begin(), op.outputs.end(), [&](int64_t value) { return !log_.values[value].saved; });
  }

  std::string why(const TraceLog::Value& value) const {
    if (value.op == TraceLog::kNone) {
      return kOutside;
    }
    const TraceLog::Op& op = log_.ops[value.op];
    if (value.anchored) {
      return "an anchor: the program kept it, and the region no longer knows how to compute it";
    }
    if (value.source != TraceLog::Source::OP) {
      return value.source == TraceLog::Source::TAG ? "by a tag" : "by its name";
    }
    if (!op.is_node) {
      return absl::StrCat(kKeptByReference, ", whatever policies say of it");
    }
    if (value.saved && !PolicyDecision(op.decision).saves()) {
      return kNotReplayable;
    }
    std::string text = to_string(op.decision);
    if (op.scope != TraceLog::kNone) {
      absl::StrAppend(&text, " by ", scope_name(log_.scopes[op.scope]));
    }
    if (!value.saved) {
      absl::StrAppend(&text, op.replays > 0 ? ", kept after its replay" : ", kept while the budget allows");
    }
    return text;
  }

  std::string for_whom(int64_t value) const {
    std::vector<std::string> reasons;
    if (holdings_.hooks(log_.values[value]) > 0) {
      reasons.push_back(users_[value].empty() ? "for autograd" : "for " + some_of(users_[value]));
    }
    if (!replayed_by_[value].empty()) {
      reasons.push_back("to replay " + some_of(replayed_by_[value], [this](int64_t op) { return op_name(log_, op); }));
    }
    return absl::StrJoin(reasons, "; ");
  }

  const TraceLog& log_;
  const Holdings& holdings_;
  std::vector<std::vector<int64_t>> replayed_by_;  // by value: ops that take it and may be replayed
  const Users users_;
};

}  // namespace

std::vector<std::string> held_lines(const TraceLog& log, const Holdings& holdings) {
  const auto& held = holdings.values();
  if (held.empty()) {
    return {log.timed ? "Nothing was held." : "Nothing is held."};
  }
  std::vector<std::string> lines;
  lines.push_back(absl::StrCat(
      holdings.now() ? "Held now: " : "Nothing is held now. When most was saved: ", bytes_text(holdings.bytes()),
      " in ", count_text(static_cast<int64_t>(held.size()), "value")));
  const HeldText text(log, holdings);
  int64_t rest = 0;
  for (size_t i = 0; i < held.size(); ++i) {
    if (i < kHeldLines) {
      lines.push_back(text.of(held[i]));
    } else {
      rest += held[i].bytes;
    }
  }
  if (held.size() > kHeldLines) {
    lines.push_back(absl::StrCat("  ... and ", held.size() - kHeldLines, " more, ", bytes_text(rest)));
  }
  return lines;
}

std::vector<std::string> whole_lines(const TraceLog& log, const Holdings& holdings) {
  struct Kind {
    int64_t count = 0;
    std::vector<std::string> consumers;
  };
  const Users users = users_of(log);
  std::map<std::string, Kind> kinds;
  for (size_t i = 0; i < log.values.size(); ++i) {
    const TraceLog::Value& value = log.values[i];
    if (!value.whole.empty() && holdings.hooks(value) > 0) {
      Kind& kind = kinds[value.whole];
      ++kind.count;
      for (const std::string& user : users[i]) {
        add_once(kind.consumers, user);
      }
    }
  }
  if (kinds.empty()) {
    return {};
  }
  std::vector<std::string> lines;
  lines.emplace_back("Saved whole, whatever policies say of it, and not counted in bytes:");
  for (const auto& [name, kind] : kinds) {
    lines.push_back(absl::StrCat("  ", pad(count_text(kind.count, "tensor"), 10), "  ", name,
                                 kind.consumers.empty() ? "" : ": for ", some_of(kind.consumers)));
  }
  return lines;
}

}  // namespace ac2::internal

#include "ac2/internal/report/explain.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ac2/internal/report/explain_budget.h"
#include "ac2/internal/report/holdings.h"
#include "ac2/internal/report/long_replays.h"
#include "ac2/internal/report/units.h"
#include "ac2/policy.h"

namespace ac2::internal {

namespace {

constexpr int64_t kNone = TraceLog::kNone;
// How many lines, or names in a line, there are before "... and N more".
constexpr size_t kHeldLines = 12;
constexpr size_t kReplayLines = 9;
constexpr size_t kLongReplayLines = 5;
constexpr size_t kSavingLines = 8;
constexpr size_t kDecidingLines = 4;
constexpr size_t kNames = 3;

// "a, b, c and 4 more"
template <class T, class Name>
std::string some_of(const std::vector<T>& things, Name&& name) {
  std::string text;
  for (size_t i = 0; i < std::min(things.size(), kNames); ++i) {
    absl::StrAppend(&text, i > 0 ? ", " : "", name(things[i]));
  }
  if (things.size() > kNames) {
    absl::StrAppend(&text, " and ", things.size() - kNames, " more");
  }
  return text;
}

std::string as_is(const std::string& name) {
  return name;
}

void add_once(std::vector<std::string>& names, const std::string& name) {
  if (!name.empty() && std::find(names.begin(), names.end(), name) == names.end()) {
    names.push_back(name);
  }
}

class Explanation {
 public:
  explicit Explanation(const TraceLog& log)
      : log_(log), holdings_(log), replayed_by_(log.values.size()), users_(log.values.size()) {
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
    for (const TraceLog::Use& use : log.uses) {
      add_once(users_[use.value], use.consumer);
    }
  }

  std::string text() {
    const TraceStats& stats = log_.stats;
    line(absl::StrCat(
        "Region of ", count_text(stats.recorded_ops, "op"), ": ", bytes_text(stats.saved_bytes), " held for backward, ",
        count_text(stats.recomputed_ops, "op"), " replayed so far",
        stats.copied_bytes > 0 ? ", " + bytes_text(stats.copied_bytes) + " copied before overwriting" : "",
        stats.evicted_values > 0 ? ", " + count_text(stats.evicted_values, "value") + " dropped for a budget" : "",
        "."));
    explain_held();
    explain_budget();
    explain_whole();
    explain_decisions();
    explain_verified();
    explain_replays();
    explain_long_replays();
    explain_savings();
    if (!log_.timed) {
      line("");
      line("Costs are in ops. Times, history, and who asked for what need ScopeOptions::timeline.");
    }
    return absl::StrJoin(lines_, "\n") + "\n";
  }

 private:
  // By reference: GCC 12 at -O3 warns of an overlong copy inside the move of a short literal (its bug 105651).
  void line(const std::string& text) { lines_.push_back(text); }

  bool is_recomputed(const TraceLog::Op& op) const {
    return std::any_of(op.outputs.begin(), op.outputs.end(), [&](int64_t value) { return !log_.values[value].saved; });
  }

  std::string op_name(int64_t op) const { return absl::StrCat(log_.ops[op].name, " (op ", log_.ops[op].index, ")"); }

  std::string why(const TraceLog::Value& value) const {
    if (value.op == kNone) {
      return "from outside the region";
    }
    const TraceLog::Op& op = log_.ops[value.op];
    if (value.anchored) {
      return "an anchor: the program kept it, and the region no longer knows how to compute it";
    }
    if (value.source != TraceLog::Source::OP) {
      return value.source == TraceLog::Source::TAG ? "by a tag" : "by its name";
    }
    if (!op.is_node) {
      return "kept by reference, whatever policies say of it";
    }
    if (value.saved && !PolicyDecision(op.decision).saves()) {
      return "it cannot be computed again";
    }
    std::string text = to_string(op.decision);
    if (op.scope != kNone) {
      const TraceLog::Scope& scope = log_.scopes[op.scope];
      absl::StrAppend(&text, " by ", scope.policy.empty() ? "a policy" : scope.policy, " at depth ", scope.depth);
    }
    if (!value.saved) {
      absl::StrAppend(&text, op.replays > 0 ? ", kept after its replay" : ", kept while the budget allows");
    }
    return text;
  }

  std::string for_whom(int64_t value) const {
    std::vector<std::string> reasons;
    if (holdings_.hooks(log_.values[value]) > 0) {
      reasons.push_back(users_[value].empty() ? "for autograd" : "for " + some_of(users_[value], as_is));
    }
    if (!replayed_by_[value].empty()) {
      reasons.push_back("to replay " + some_of(replayed_by_[value], [this](int64_t op) { return op_name(op); }));
    }
    return absl::StrJoin(reasons, "; ");
  }

  void explain_held() {
    const auto& held = holdings_.values();
    line("");
    if (held.empty()) {
      line(log_.timed ? "Nothing was held." : "Nothing is held.");
      return;
    }
    line(absl::StrCat(holdings_.now() ? "Held now: " : "Nothing is held now. When most was: ",
                      bytes_text(holdings_.bytes()), " in ", count_text(static_cast<int64_t>(held.size()), "value")));
    int64_t rest = 0;
    for (size_t i = 0; i < held.size(); ++i) {
      if (i < kHeldLines) {
        line(held_text(held[i]));
      } else {
        rest += held[i].bytes;
      }
    }
    if (held.size() > kHeldLines) {
      line(absl::StrCat("  ... and ", held.size() - kHeldLines, " more, ", bytes_text(rest)));
    }
  }

  std::string held_text(const Holdings::Holding& held) const {
    const TraceLog::Value& value = log_.values[held.value];
    std::string text = absl::StrCat("  ", pad(bytes_text(held.bytes), 10), "  ",
                                    value.op == kNone ? "" : op_name(value.op) + " ", value.shape);
    if (!value.name.empty()) {
      absl::StrAppend(&text, value.shape.empty() ? "\"" : " \"", value.name, "\"");
    }
    if (value.op != kNone && !log_.ops[value.op].where.empty()) {
      absl::StrAppend(&text, " ", log_.ops[value.op].where);
    }
    const std::string whom = for_whom(held.value);
    absl::StrAppend(&text, value.shape.empty() && value.name.empty() ? "" : ": ", why(value), whom.empty() ? "" : "; ",
                    whom);
    return text;
  }

  void explain_budget() {
    const std::vector<std::string> lines = budget_lines(log_);
    if (!lines.empty()) {
      line("");
      lines_.insert(lines_.end(), lines.begin(), lines.end());
    }
  }

  void explain_whole() {
    struct Kind {
      int64_t count = 0;
      std::vector<std::string> consumers;
    };
    std::map<std::string, Kind> kinds;
    for (size_t i = 0; i < log_.values.size(); ++i) {
      const TraceLog::Value& value = log_.values[i];
      if (!value.whole.empty() && holdings_.hooks(value) > 0) {
        Kind& kind = kinds[value.whole];
        ++kind.count;
        for (const std::string& user : users_[i]) {
          add_once(kind.consumers, user);
        }
      }
    }
    if (kinds.empty()) {
      return;
    }
    line("");
    line("Saved whole, whatever policies say of it, and not counted in bytes:");
    for (const auto& [name, kind] : kinds) {
      line(absl::StrCat("  ", pad(count_text(kind.count, "tensor"), 10), "  ", name,
                        kind.consumers.empty() ? "" : ": for ", some_of(kind.consumers, as_is)));
    }
  }

  // Says what each policy decided, so that a policy whose ops or names never occur can be told from one that decides.
  // Only a timeline knows which policy decided.
  void explain_decisions() {
    std::vector<std::map<CheckpointPolicy, int64_t>> counts(log_.scopes.size());
    for (const TraceLog::Op& op : log_.ops) {
      if (op.is_node && op.scope != kNone) {
        ++counts[op.scope][op.decision];
      }
    }
    if (counts.empty()) {
      return;
    }
    line("");
    line("Decided, in ops that compute something:");
    for (size_t i = 0; i < std::min(counts.size(), kDecidingLines); ++i) {
      std::vector<std::string> parts;
      for (const auto& [decision, count] : counts[i]) {
        parts.push_back(absl::StrCat(count, " ", to_string(decision)));
      }
      const TraceLog::Scope& scope = log_.scopes[i];
      line(absl::StrCat("  ", scope.policy.empty() ? "a policy" : scope.policy, " at depth ", scope.depth, ": ",
                        parts.empty() ? "nothing" : absl::StrJoin(parts, ", ")));
    }
    if (counts.size() > kDecidingLines) {
      line(absl::StrCat("  ... and ", counts.size() - kDecidingLines, " more scopes"));
    }
  }

  // Says how many results were compared, so that a run in which none was is not taken for one that was checked.
  void explain_verified() {
    if (log_.verifies) {
      line("");
      line(log_.stats.verified_results > 0
               ? absl::StrCat("Verify mode has compared ", count_text(log_.stats.verified_results, "replayed result"),
                              " with forward's.")
               : "Verify mode has compared nothing so far: no result that forward made was replayed.");
    }
  }

  // The replays of all ops of one name.
  struct Replayed {
    std::string name;
    int64_t count = 0;
    int64_t time = 0;
    std::vector<std::string> consumers;
  };

  // The most time comes first, or the largest count where there is no timeline.
  std::vector<Replayed> replayed_by_name() const {
    std::map<std::string, Replayed> by_name;
    for (const TraceLog::Op& op : log_.ops) {
      if (op.replays > 0) {
        by_name[op.name].count += op.replays;
      }
    }
    for (const TraceLog::Replay& replay : log_.replays) {
      if (replay.op != kNone) {
        Replayed& replayed = by_name[log_.ops[replay.op].name];
        replayed.time += replay.span.length();
        add_once(replayed.consumers, replay.consumer);
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

  void explain_replays() {
    const std::vector<Replayed> replayed = replayed_by_name();
    if (replayed.empty()) {
      return;
    }
    int64_t time = 0;
    int64_t rest = 0;  // replays of the names that get no line
    for (size_t i = 0; i < replayed.size(); ++i) {
      time += replayed[i].time;
      rest += i < kReplayLines ? 0 : replayed[i].count;
    }
    line("");
    line(absl::StrCat("Recomputed: ", count_text(log_.stats.recomputed_ops, "op"),
                      log_.timed ? ", " + time_text(time) : std::string()));
    for (size_t i = 0; i < std::min(replayed.size(), kReplayLines); ++i) {
      const Replayed& entry = replayed[i];
      line(absl::StrCat("  ", pad(log_.timed ? time_text(entry.time) : count_text(entry.count, "time"), 10), "  ",
                        entry.name, log_.timed ? absl::StrCat(" x", entry.count) : std::string(),
                        entry.consumers.empty() ? "" : ": for ", some_of(entry.consumers, as_is)));
    }
    if (replayed.size() > kReplayLines) {
      line(absl::StrCat("  ... and ", replayed.size() - kReplayLines, " more kinds of op, ", rest, " replays"));
    }
  }

  void explain_long_replays() {
    const std::vector<LongReplay> replays = long_replays(log_);
    if (replays.empty()) {
      return;
    }
    line("");
    line("A replay reaches far back for:");
    for (size_t i = 0; i < std::min(replays.size(), kLongReplayLines); ++i) {
      const TraceLog::Value& value = log_.values[replays[i].value];
      line(absl::StrCat("  ", pad(bytes_text(value.bytes), 10), "  ", op_name(value.op), value.shape.empty() ? "" : " ",
                        value.shape, ": replays ", count_text(replays[i].ops, "op"), ", from ",
                        op_name(replays[i].first), " on"));
    }
    if (replays.size() > kLongReplayLines) {
      line(absl::StrCat("  ... and ", replays.size() - kLongReplayLines, " more"));
    }
  }

  void explain_savings() {
    const std::vector<Holdings::Saving> savings = holdings_.savings();
    if (savings.empty()) {
      return;
    }
    line("");
    line("Recomputing one of these instead of saving it would save, and cost in a backward:");
    for (size_t i = 0; i < std::min(savings.size(), kSavingLines); ++i) {
      const Holdings::Saving& saving = savings[i];
      std::string text =
          absl::StrCat("  ", pad(bytes_text(saving.bytes), 10), "  ", op_name(log_.values[saving.value].op), ": ");
      absl::StrAppend(
          &text, saving.ops == 0 ? "nothing, it is replayed for another result anyway" : count_text(saving.ops, "op"),
          saving.ops > 0 && log_.timed ? ", " + time_text(saving.time) : std::string());
      if (saving.instead > 0) {
        absl::StrAppend(&text, "; holds ", bytes_text(saving.instead), " of inputs instead");
      }
      line(text);
    }
    if (savings.size() > kSavingLines) {
      line(absl::StrCat("  ... and ", savings.size() - kSavingLines, " more"));
    }
  }

  const TraceLog& log_;
  const Holdings holdings_;
  std::vector<std::vector<int64_t>> replayed_by_;  // by value: ops that take it and may be replayed
  std::vector<std::vector<std::string>> users_;    // by value: names of the autograd nodes that unpacked it
  std::vector<std::string> lines_;
};

}  // namespace

std::string explain(const TraceLog& log) {
  return Explanation(log).text();
}

}  // namespace ac2::internal

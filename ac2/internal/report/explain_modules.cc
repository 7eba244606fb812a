#include "ac2/internal/report/explain_modules.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "ac2/internal/libtorch/host_language.h"
#include "ac2/internal/report/module_groups.h"
#include "ac2/internal/report/units.h"

namespace ac2::internal {

namespace {

constexpr size_t kModuleLines = 8;
constexpr size_t kRuleLines = 12;
std::string module_line(const ModuleGroup& group) {
  return absl::StrCat("  ", pad(bytes_text(group.held_bytes), 10), "  ", module_group_name(group),
                      group.modules > 1 ? absl::StrCat(" (", group.modules, " modules)") : "",
                      group.replays > 0 ? absl::StrCat(", ", count_text(group.replays, "op"), " replayed") : "");
}

// The results of one op in one group that backward asked for.
struct Wanted {
  int64_t kept_bytes = 0;
  int64_t dropped_bytes = 0;

  bool is_saved() const { return kept_bytes > dropped_bytes; }
};

// By pattern and op, as a rule of by_module() spells them.
std::map<std::string, Wanted> wanted_results(const TraceLog& log) {
  absl::flat_hash_set<int64_t> evicted;
  for (const TraceLog::Event& event : log.events) {
    if (event.change == TraceLog::Change::EVICT) {
      evicted.insert(event.value);
    }
  }
  std::map<std::string, Wanted> wanted;
  for (const TraceLog::Op& op : log.ops) {
    const size_t name = op.name.find("::");
    if (!op.is_node || op.where.empty() || name == std::string::npos) {
      continue;
    }
    const std::string overloaded = op.name.substr(name + 2);
    const std::string group = module_group_of(op);
    const std::string rule = absl::StrCat(group.empty() ? "**" : group, " :: ", op.name.substr(0, name), ".",
                                          overloaded.substr(0, overloaded.find('.')));
    for (const int64_t output : op.outputs) {
      const TraceLog::Value& value = log.values[output];
      if (value.all_hooks > 0) {
        (evicted.contains(output) ? wanted[rule].dropped_bytes : wanted[rule].kept_bytes) += value.bytes;
      }
    }
  }
  return wanted;
}

}  // namespace

std::vector<std::string> module_lines(const TraceLog& log, const Holdings& holdings) {
  const std::vector<ModuleGroup> groups = module_groups(log, holdings);
  if (groups.empty()) {
    return {};
  }
  std::vector<std::string> lines = {
      absl::StrCat("By module, held ", holdings.now() ? "now" : "when most was held", ":")};
  for (size_t i = 0; i < std::min(groups.size(), kModuleLines); ++i) {
    lines.push_back(module_line(groups[i]));
  }
  if (groups.size() > kModuleLines) {
    lines.push_back(absl::StrCat("  ... and ", groups.size() - kModuleLines, " more"));
  }
  return lines;
}

std::vector<std::string> keeping_policy_lines(const TraceLog& log) {
  if (!log.timed || log.stats.evicted_values == 0) {
    return {};
  }
  std::vector<std::pair<std::string, Wanted>> rules;
  int64_t kept_bytes = 0, kept_by_rules = 0, more_bytes = 0;
  for (auto& [rule, wanted] : wanted_results(log)) {
    kept_bytes += wanted.kept_bytes;
    if (wanted.is_saved()) {
      rules.emplace_back(rule, wanted);
    }
  }
  if (rules.empty()) {
    return {};
  }
  std::stable_sort(rules.begin(), rules.end(),
                   [](const auto& a, const auto& b) { return a.second.kept_bytes > b.second.kept_bytes; });
  rules.resize(std::min(rules.size(), kRuleLines));
  const bool python = is_python_there();
  std::vector<std::string> lines = {absl::StrCat("A policy that keeps about what the budget kept: ",
                                                 python ? "ac2.policies.by_module({" : "ac2::policies::by_module({")};
  for (const auto& [rule, wanted] : rules) {
    kept_by_rules += wanted.kept_bytes;
    more_bytes += wanted.dropped_bytes;
    lines.push_back(python ? absl::StrCat("    \"", rule, "\": ac2.CheckpointPolicy.MUST_SAVE,")
                           : absl::StrCat("    {\"", rule, "\", ac2::CheckpointPolicy::MUST_SAVE},"));
  }
  lines.emplace_back("})");
  lines.push_back(
      absl::StrCat("  It saves ", bytes_text(kept_by_rules), " of the ", bytes_text(kept_bytes),
                   " of results that the budget kept until backward asked for them",
                   more_bytes > 0 ? absl::StrCat(", and ", bytes_text(more_bytes), " that it dropped.") : "."));
  return lines;
}

}  // namespace ac2::internal

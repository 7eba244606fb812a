// Text that the sections of explain(), the summary and the page share: names, and lists that are cut short.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ac2/internal/observe/trace_log.h"

namespace ac2::internal {

// Where no policy decides of a value.
inline constexpr char kOutside[] = "from outside the region";
inline constexpr char kKeptByReference[] = "kept by reference";
inline constexpr char kNotReplayable[] = "it cannot be computed again";
// Of what a budget does not count.
inline constexpr char kNotCounted[] = "parameters, inputs, and what else the program or another region has too";

// "save_ops at depth 0". A scope that was opened without a policy has one of this name, which prefers to save.
inline std::string scope_name(const TraceLog::Scope& scope) {
  const bool has_policy = scope.policy != "no policy";
  return absl::StrCat(!has_policy            ? "a scope without a policy"
                      : scope.policy.empty() ? "a policy without a name"
                                             : scope.policy,
                      " at depth ", scope.depth);
}

// "a, b, c and 4 more"
template <class T, class Name>
std::string some_of(const std::vector<T>& things, Name&& name) {
  constexpr size_t kNames = 3;
  std::string text;
  for (size_t i = 0; i < std::min(things.size(), kNames); ++i) {
    absl::StrAppend(&text, i > 0 ? ", " : "", name(things[i]));
  }
  if (things.size() > kNames) {
    absl::StrAppend(&text, " and ", things.size() - kNames, " more");
  }
  return text;
}

inline std::string some_of(const std::vector<std::string>& names) {
  return some_of(names, [](const std::string& name) { return name; });
}

inline void add_once(std::vector<std::string>& names, const std::string& name) {
  if (!name.empty() && std::find(names.begin(), names.end(), name) == names.end()) {
    names.push_back(name);
  }
}

inline std::string op_name(const TraceLog& log, int64_t op) {
  return absl::StrCat(log.ops[op].name, " (op ", log.ops[op].index, ")");
}

}  // namespace ac2::internal

// Text that the sections of explain() share: names of ops, and lists that are cut short.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ac2/internal/observe/trace_log.h"

namespace ac2::internal {

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

#include "ac2/internal/report/module_groups.h"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <map>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace ac2::internal {

namespace {

constexpr std::string_view kIn = "in ";
constexpr std::string_view kAfter = "after ";

using Path = std::vector<std::string>;

// Of several models the path begins with the class of its model, which is no part of the path.
Path path_of(std::string_view where) {
  Path path = absl::StrSplit(std::string(where), '.');
  const size_t letter = path[0].find_first_not_of('_');
  const bool is_class = letter != std::string::npos && std::isupper(static_cast<unsigned char>(path[0][letter])) != 0;
  if (path.size() > 1 && is_class) {
    path.erase(path.begin());
  }
  return path;
}

bool is_number(const std::string& component) {
  return !component.empty() && std::all_of(component.begin(), component.end(),
                                           [](unsigned char letter) { return std::isdigit(letter) != 0; });
}

// "layers.*.mlp" for "layers.3.mlp".
std::string with_stars(Path path) {
  for (std::string& component : path) {
    component = is_number(component) ? "*" : component;
  }
  return absl::StrJoin(path, ".");
}

// The block around a module: up to the last number of its path, or what is around it if there is none.
Path block_around(Path path) {
  const auto number = std::find_if(path.rbegin(), path.rend(), is_number);
  path.resize(number != path.rend() ? path.rend() - number : path.size() - 1);
  return path;
}

bool is_in_a_module(const TraceLog::Op& op) {
  return std::string_view(op.where).starts_with(kIn);
}

}  // namespace

std::string module_group_of(const TraceLog::Op& op) {
  const std::string_view where = op.where;
  return is_in_a_module(op) ? with_stars(path_of(where.substr(kIn.size())))
                            : with_stars(block_around(path_of(where.substr(std::min(kAfter.size(), where.size())))));
}

std::string module_group_name(const ModuleGroup& group) {
  return group.pattern.empty() ? "the model itself" : group.pattern;
}

std::vector<ModuleGroup> module_groups(const TraceLog& log, const Holdings& holdings) {
  struct Sums {
    absl::flat_hash_set<std::string> modules;
    ModuleGroup group;
  };
  std::map<std::string, Sums> sums;
  for (const TraceLog::Op& op : log.ops) {
    if (op.where.empty()) {
      continue;
    }
    Sums& group = sums[module_group_of(op)];
    ++group.group.ops;
    group.group.replays += op.replays;
    if (is_in_a_module(op)) {
      group.modules.insert(op.where);
    }
  }
  for (const Holdings::Holding& held : holdings.values()) {
    const int64_t op = log.values[held.value].op;
    if (op != TraceLog::kNone && !log.ops[op].where.empty()) {
      sums[module_group_of(log.ops[op])].group.held_bytes += held.bytes;
    }
  }
  std::vector<ModuleGroup> groups;
  for (auto& [pattern, each] : sums) {
    each.group.pattern = pattern;
    each.group.modules = static_cast<int64_t>(each.modules.size());
    groups.push_back(std::move(each.group));
  }
  std::stable_sort(groups.begin(), groups.end(),
                   [](const ModuleGroup& a, const ModuleGroup& b) { return a.held_bytes > b.held_bytes; });
  return groups;
}

}  // namespace ac2::internal

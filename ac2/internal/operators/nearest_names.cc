#include "ac2/internal/operators/nearest_names.h"

#include <algorithm>
#include <utility>

namespace ac2::internal {

namespace {

// Levenshtein's distance between `name` and the nearest text that `pattern` matches, or limit + 1 if it is larger than
// `limit`. A pattern without '*' and '?' matches itself.
size_t edit_distance(const std::string& pattern, const std::string& name, size_t limit) {
  std::vector<size_t> row(name.size() + 1);
  for (size_t j = 0; j <= name.size(); ++j) {
    row[j] = j;
  }
  for (const char wanted : pattern) {
    const bool any = wanted == '*';
    size_t diagonal = row[0];
    row[0] += any ? 0 : 1;
    for (size_t j = 1; j <= name.size(); ++j) {
      const size_t substituted = diagonal + (wanted == name[j - 1] || wanted == '?' ? 0 : 1);
      diagonal = row[j];
      // '*' stands for nothing, or for one character more.
      row[j] = any ? std::min(row[j], row[j - 1]) : std::min({substituted, row[j] + 1, row[j - 1] + 1});
    }
    if (*std::min_element(row.begin(), row.end()) > limit) {
      return limit + 1;
    }
  }
  return row.back();
}

}  // namespace

std::vector<std::string> nearest_names(const std::string& name, const std::set<std::string>& candidates, size_t limit) {
  constexpr size_t kMost = 3;
  std::vector<std::pair<size_t, std::string>> near;
  for (const std::string& candidate : candidates) {
    if (const size_t distance = edit_distance(name, candidate, limit); distance <= limit) {
      near.emplace_back(distance, candidate);
    }
  }
  std::sort(near.begin(), near.end());
  if (!near.empty() && near.front().second == name) {
    return {name};
  }
  std::vector<std::string> names;
  for (size_t i = 0; i < std::min(near.size(), kMost); ++i) {
    names.push_back(near[i].second);
  }
  return names;
}

}  // namespace ac2::internal

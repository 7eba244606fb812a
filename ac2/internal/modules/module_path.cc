#include "ac2/internal/modules/module_path.h"

#include <fnmatch.h>

#include <cstddef>

#include "absl/strings/str_split.h"

namespace ac2::internal {

PathPattern::PathPattern(const std::string& text) : parts_(split(text)), around_(parts_) {
  around_.emplace_back("**");
}

bool PathPattern::matches(const std::string& path) const {
  return matches(parts_, split(path));
}

bool PathPattern::matches_around(const std::string& path) const {
  return matches(around_, split(path));
}

PathPattern::Parts PathPattern::split(const std::string& path) {
  return path.empty() ? Parts() : Parts(absl::StrSplit(path, '.'));
}

// As many of `name`'s parts as `**` may stand for are tried by going back to the last one.
bool PathPattern::matches(const Parts& pattern, const Parts& name) {
  size_t p = 0, n = 0;
  size_t after_stars = pattern.size() + 1, retry = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == "**") {
      after_stars = ++p;
      retry = n;
    } else if (p < pattern.size() && fnmatch(pattern[p].c_str(), name[n].c_str(), 0) == 0) {
      ++p;
      ++n;
    } else if (after_stars <= pattern.size()) {
      p = after_stars;
      n = ++retry;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == "**") ++p;
  return p == pattern.size();
}

std::string parent_of(const std::string& path) {
  const size_t dot = path.rfind('.');
  return dot == std::string::npos ? "" : path.substr(0, dot);
}

}  // namespace ac2::internal

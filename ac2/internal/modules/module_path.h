// Dotted names of modules ("layers.0.mlp"), and patterns over them.
//
//   const PathPattern pattern("layers.*.mlp");
//   pattern.matches("layers.0.mlp");             // the module itself
//   pattern.matches_around("layers.0.mlp.act");  // the module or one around it
//
// '*' and '?' stand for characters within one component, "**" for any number of components. The empty name is that of
// the model itself.
//
// Threads: a const PathPattern may be used by many at once.
#pragma once

#include <string>
#include <vector>

namespace ac2::internal {

class PathPattern {
 public:
  explicit PathPattern(const std::string& text);

  bool matches(const std::string& path) const;
  // Whether the pattern matches `path` or what is left of it without its last components.
  bool matches_around(const std::string& path) const;

 private:
  using Parts = std::vector<std::string>;

  static Parts split(const std::string& path);
  static bool matches(const Parts& pattern, const Parts& name);

  Parts parts_;
  Parts around_;  // the same, and "**"
};

// The name of the module around this one; empty for a child of the model and for the model itself.
std::string parent_of(const std::string& path);

}  // namespace ac2::internal

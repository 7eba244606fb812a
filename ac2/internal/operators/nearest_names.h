// The names that are probably meant by one that nothing has.
//
//   nearest_names("aten::mmm", registered, 2)    // {"aten::mm", "aten::bmm"}
//
// Threads: any.
#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <vector>

namespace ac2::internal {

// At most three of the candidates, the nearest first, of those with at most `limit` mistakes. `name` may be a pattern
// with '*' and '?', which matches without a mistake what it matches. If a candidate is the name itself, only that.
std::vector<std::string> nearest_names(const std::string& name, const std::set<std::string>& candidates, size_t limit);

}  // namespace ac2::internal

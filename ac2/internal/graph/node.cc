#include "ac2/internal/graph/node.h"

namespace ac2::internal {

std::string describe(const Node& node) {
  return node.facts->name + " (op " + std::to_string(node.index) + " of its region)";
}

}  // namespace ac2::internal

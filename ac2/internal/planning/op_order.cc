#include "ac2/internal/planning/op_order.h"

#include <algorithm>

namespace ac2::internal {

std::vector<uint32_t> dearest_first(const StepGraph& graph, const std::vector<int64_t>& bytes,
                                    std::vector<uint32_t> ops) {
  const auto rate = [&](uint32_t op) { return graph.ops[op].cost / static_cast<double>(bytes[op]); };
  std::stable_sort(ops.begin(), ops.end(), [&](uint32_t a, uint32_t b) { return rate(a) > rate(b); });
  return ops;
}

std::vector<uint32_t> first_share(const std::vector<int64_t>& bytes, const std::vector<uint32_t>& order, double share) {
  double most = 0;
  for (const uint32_t op : order) {
    most += share * static_cast<double>(bytes[op]);
  }
  std::vector<uint32_t> first;
  double sum = 0;
  for (const uint32_t op : order) {
    sum += static_cast<double>(bytes[op]);
    if (sum > most * (1 + 1e-9)) {
      break;
    }
    first.push_back(op);
  }
  std::sort(first.begin(), first.end());
  return first;
}

}  // namespace ac2::internal

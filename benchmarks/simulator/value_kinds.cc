#include "benchmarks/simulator/value_kinds.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>

namespace ac2::internal {

namespace {

using Kind = std::tuple<std::string, size_t, int64_t>;  // op, which of its results, bytes

}  // namespace

std::vector<std::vector<uint32_t>> largest_kinds(const RecordedStep& step, size_t count) {
  std::map<Kind, std::vector<uint32_t>> values;
  for (const RecordedStep::Op& op : step.ops) {
    for (size_t i = 0; i < op.results.size(); ++i) {
      const RecordedStep::Tensor& tensor = step.tensors[op.results[i]];
      const int64_t bytes = step.values[tensor.value].bytes;
      if (tensor.viewed == kNoId && bytes > 0) {
        values[{op.name, i, bytes}].push_back(tensor.value);
      }
    }
  }
  std::vector<std::pair<int64_t, std::vector<uint32_t>>> sorted;
  for (auto& [kind, members] : values) {
    sorted.emplace_back(-std::get<2>(kind) * static_cast<int64_t>(members.size()), std::move(members));
  }
  std::sort(sorted.begin(), sorted.end());
  std::vector<std::vector<uint32_t>> kinds;
  for (size_t i = 0; i < sorted.size() && i < count; ++i) {
    kinds.push_back(std::move(sorted[i].second));
  }
  return kinds;
}

}  // namespace ac2::internal

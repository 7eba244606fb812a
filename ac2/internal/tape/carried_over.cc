#include "ac2/internal/tape/carried_over.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"

namespace ac2::internal {

namespace {

// The stretch that ends with a node. Each number is the largest, or the smallest, of all paths to the node.
struct Stretch {
  size_t length = 0;  // in nodes
  size_t begin = 0;   // in the list of all nodes
  int64_t bytes = 0;
  bool has_long_one_behind = false;  // a long stretch, behind what some hook wants
};

bool is_long(const Stretch& stretch, size_t end, const LongStretch& limits) {
  return stretch.length > limits.length && (end - stretch.begin > limits.nodes || stretch.bytes > limits.bytes);
}

}  // namespace

int64_t bytes_of_our_own(const Value& value) {
  if (value.is_packed()) {
    return value.packed_form()->packed_bytes;
  }
  return value.is_held_by_us_alone() ? value.bytes() : 0;
}

std::vector<Value*> carried_over(const StorageIndex& storages, const LongStretch& limits,
                                 c10::function_ref<bool(const Value&)> condition) {
  std::vector<Node*> nodes;
  absl::flat_hash_map<const Node*, size_t> places;
  const auto visit = [&](const Value* value) {
    if (value != nullptr && value->producer() != nullptr && places.emplace(value->producer(), 0).second) {
      nodes.push_back(value->producer());
    }
  };
  storages.for_each(visit);
  for (size_t i = 0; i < nodes.size(); ++i) {
    for (const NodeInput& input : nodes[i]->inputs) {
      visit(input.value);
    }
  }
  std::sort(nodes.begin(), nodes.end(), [](const Node* a, const Node* b) { return a->index < b->index; });

  // A node comes after the nodes whose results it takes, so one pass suffices.
  std::vector<Stretch> stretches(nodes.size());
  std::vector<Value*> found;
  absl::flat_hash_set<const Value*> cut;
  for (size_t i = 0; i < nodes.size(); ++i) {
    places[nodes[i]] = i;
    Stretch& stretch = stretches[i];
    stretch.begin = i;
    int64_t own_bytes = 0;
    for (const NodeInput& input : nodes[i]->inputs) {
      if (input.value == nullptr || cut.contains(input.value)) {
        continue;
      }
      const bool is_wanted = input.value->has_hooks();
      own_bytes += is_wanted ? 0 : bytes_of_our_own(*input.value);
      if (input.value->producer() == nullptr) {
        continue;
      }
      const size_t end = places[input.value->producer()];
      const Stretch& before = stretches[end];
      stretch.has_long_one_behind |= before.has_long_one_behind || (is_wanted && is_long(before, end, limits));
      if (!is_wanted) {
        stretch.length = std::max(stretch.length, before.length);
        stretch.begin = std::min(stretch.begin, before.begin);
        stretch.bytes = std::max(stretch.bytes, before.bytes);
      }
    }
    ++stretch.length;
    stretch.bytes += own_bytes;
    nodes[i]->reaches_far_back = stretch.has_long_one_behind;
    if (!stretch.has_long_one_behind) {
      continue;
    }
    for (const NodeOutput& output : nodes[i]->outputs) {
      if (output.value != nullptr && condition(*output.value)) {
        found.push_back(output.value);
        cut.insert(output.value);
      }
    }
  }
  return found;
}

}  // namespace ac2::internal

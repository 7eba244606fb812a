#include "ac2/internal/eviction/remembered_step.h"

#include <algorithm>
#include <tuple>

namespace ac2::internal {

namespace {

uint64_t mix(uint64_t hash, uint64_t next) {
  hash ^= next + 0x9e3779b97f4a7c15ULL + (hash << 12) + (hash >> 4);
  hash *= 0xff51afd7ed558ccdULL;
  return hash ^ (hash >> 32);
}

}  // namespace

void RememberedStep::add_op(uint64_t signature, double cost) {
  ops_.push_back({signature, mix(ops_.empty() ? 0 : ops_.back().prefix, signature), length_, results_});
  length_ += cost;
}

uint64_t RememberedStep::anchor(uint32_t op) const {
  uint64_t hash = 0;
  for (uint32_t i = 0; i < kAnchor; ++i) {
    hash = mix(hash, ops_[op - i].signature);
  }
  return hash;
}

void RememberedStep::finish() {
  first_uses_.assign(results_ + 1, 0);
  for (const auto& [result, op] : uses_of_) {
    ++first_uses_[result + 1];
  }
  for (uint32_t i = 0; i < results_; ++i) {
    first_uses_[i + 1] += first_uses_[i];
  }
  uses_.resize(uses_of_.size());
  std::vector<uint32_t> next(first_uses_.begin(), first_uses_.end() - 1);
  for (const auto& [result, op] : uses_of_) {
    uses_[next[result]++] = op;
  }
  uses_of_.clear();
  uses_of_.shrink_to_fit();
  ops_.shrink_to_fit();

  std::vector<std::pair<uint64_t, uint32_t>> anchors;
  for (uint32_t op = kAnchor - 1; op < ops_.size(); ++op) {
    anchors.emplace_back(anchor(op), op);
  }
  std::sort(anchors.begin(), anchors.end());
  anchored_.reserve(anchors.size());
  for (const auto& [hash, op] : anchors) {
    anchored_.push_back(op);
  }
}

uint32_t RememberedStep::next_use(uint32_t result, uint32_t place) const {
  const auto begin = uses_.begin() + first_uses_[result];
  const auto end = uses_.begin() + first_uses_[result + 1];
  const auto next = place == kNone ? begin : std::upper_bound(begin, end, place);
  return next != end ? *next : kNone;
}

uint32_t RememberedStep::find(uint64_t wanted, uint32_t after) const {
  const auto found = std::lower_bound(
      anchored_.begin(), anchored_.end(), std::pair(wanted, after),
      [this](uint32_t op, const std::pair<uint64_t, uint32_t>& to) { return std::pair(anchor(op), op) < to; });
  return found != anchored_.end() && anchor(*found) == wanted ? *found : kNone;
}

int64_t RememberedStep::bytes() const {
  return static_cast<int64_t>(ops_.capacity() * sizeof(Op) + uses_of_.capacity() * sizeof(uses_of_[0]) +
                              (uses_.capacity() + first_uses_.capacity() + anchored_.capacity()) * sizeof(uint32_t));
}

}  // namespace ac2::internal

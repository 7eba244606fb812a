#include "ac2/internal/tape/meta_table.h"

#include <algorithm>

namespace ac2::internal {

const TensorMeta* MetaTable::find_or_add(const c10::TensorImpl& impl, size_t hash) {
  auto& candidates = by_hash_[hash];
  for (const std::unique_ptr<const TensorMeta>& candidate : candidates) {
    if (candidate->describes(impl)) {
      return candidate.get();
    }
  }
  candidates.push_back(std::make_unique<const TensorMeta>(impl));
  ++size_;
  return candidates.back().get();
}

void MetaTable::keep_only(const absl::flat_hash_set<const TensorMeta*>& used) {
  absl::erase_if(by_hash_, [&](auto& entry) {
    const size_t before = entry.second.size();
    std::erase_if(entry.second, [&](const auto& meta) { return !used.contains(meta.get()); });
    size_ -= before - entry.second.size();
    return entry.second.empty();
  });
  last_ = nullptr;
  recent_ = {};
  crowded_at_ = std::max(kCrowded, 2 * size_);
}

}  // namespace ac2::internal

#include "ac2/internal/libtorch/meta_table.h"

namespace ac2::internal {

const TensorMeta* MetaTable::find_or_add(const c10::TensorImpl& impl, size_t hash) {
  std::vector<const TensorMeta*>& candidates = by_hash_[hash];
  for (const TensorMeta* candidate : candidates) {
    if (candidate->describes(impl)) {
      return candidate;
    }
  }
  candidates.push_back(&metas_.emplace_back(impl));
  return candidates.back();
}

}  // namespace ac2::internal

// The TensorMetas of one tape, each kept once. Most tensors of a program share a few shapes, and a pointer takes 8
// bytes where a TensorMeta takes 112.
//
//   const TensorMeta* meta = table.intern(*tensor.unsafeGetTensorImpl());
//
// Lifetime: a TensorMeta never changes, and lives as long as the table, or until keep_only() drops it.
// Threads: not thread-safe; the tape's lock guards it.
#pragma once

#include <c10/core/TensorImpl.h>

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "ac2/internal/libtorch/tensor_meta.h"

namespace ac2::internal {

class MetaTable {
 public:
  // `impl` must have a plain storage.
  const TensorMeta* intern(const c10::TensorImpl& impl) {
    if (last_ != nullptr && last_->describes(impl)) {
      return last_;
    }
    const size_t hash = TensorMeta::hash(impl);
    const TensorMeta*& recent = recent_[hash % recent_.size()];
    if (recent == nullptr || !recent->describes(impl)) {
      recent = find_or_add(impl, hash);
    }
    return last_ = recent;
  }

  // There are so many that it is time to drop the unused ones. A program may make new ones in every step, as where it
  // reads another slice of its data each time.
  bool is_crowded() const { return size_ >= crowded_at_; }
  void keep_only(const absl::flat_hash_set<const TensorMeta*>& used);

 private:
  static constexpr size_t kCrowded = 1024;

  const TensorMeta* find_or_add(const c10::TensorImpl& impl, size_t hash);

  const TensorMeta* last_ = nullptr;
  std::array<const TensorMeta*, 32> recent_{};
  absl::flat_hash_map<size_t, std::vector<std::unique_ptr<const TensorMeta>>> by_hash_;
  size_t size_ = 0;
  size_t crowded_at_ = kCrowded;
};

}  // namespace ac2::internal

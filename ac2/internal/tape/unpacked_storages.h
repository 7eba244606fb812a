// Storages that a backward inside the region was given for what autograd had saved, and the values whose bytes they
// have.
//
//   unpacked.add(tensor, value);               // the tensor that a hook is about to give to such a backward
//   Value* value = unpacked.find(tensor);      // an op of that backward reads it
//   unpacked.forget(storage);                  // the storage is about to be written
//
// Such a backward makes a graph (create_graph), and its ops are recorded as those of forward. They read values that
// were replayed, unpacked or copied for it, in storages other than those that forward computed. Without this table each
// of these storages would be a value from outside: held by reference for the second backward, so that everything that
// the first one has computed again would stay. With it the ops take the value itself, which may be computed once more.
//
// To forget an entry is always safe: the storage is a value from outside then. So entries do not watch as much as
// values do. References to storages are weak, and each entry is a reference to its value.
//
// Rejected: making the storage the value's original. A value that is packed, or held as a copy, watches the versions of
// the storage that forward computed.
//
// Threads: guarded by the tape's lock.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/intrusive_ptr.h>

#include <cstddef>

#include "absl/container/flat_hash_map.h"
#include "ac2/internal/graph/node.h"
#include "ac2/internal/graph/watched_versions.h"
#include "ac2/internal/tape/lifetimes.h"

namespace ac2::internal {

class UnpackedStorages {
 public:
  explicit UnpackedStorages(Lifetimes& lifetimes) : lifetimes_(lifetimes) {}

  // `tensor` has a plain storage with the bytes of `value`. Does nothing for a storage that it knows, for the original
  // of the value, and while that is alive.
  void add(const at::Tensor& tensor, Value* value);
  // Null if the storage of the tensor is not one of these, if it has been written to since, or if the value has no
  // bytes but these any more.
  Value* find(const at::Tensor& tensor);
  // The same for one who only looks. May be a value that find() would not return.
  const Value* peek(const c10::StorageImpl* storage) const;
  void forget(const c10::StorageImpl* storage);
  // Forgets the storages that have died.
  void sweep();
  void clear();

  template <class Fn>
  void for_each(Fn&& fn) const {
    for (const auto& [storage, entry] : entries_) {
      fn(entry.value);
    }
  }

 private:
  struct Entry {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;  // keeps the address from being another storage's
    Value* value;                                       // referenced
    WatchedVersions versions;
  };

  static constexpr size_t kLeastSwept = 16;

  Lifetimes& lifetimes_;
  absl::flat_hash_map<const c10::StorageImpl*, Entry> entries_;
  size_t sweep_at_ = kLeastSwept;
};

}  // namespace ac2::internal

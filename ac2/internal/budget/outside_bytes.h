// The bytes of tensors that regions take from outside and that only regions keep alive. Parameters, and what the
// program itself holds on to, are there anyway; the result of one region that only the next one's backward wants is
// not.
//
//   OutsideBytes outside;
//   outside.add(storage);                  // a tape holds it; as often as tapes do
//   outside.remove(storage);
//   if (held + outside.most() > budget) {  // cheap: nothing is looked at
//     … held + outside.ours() …
//   }
//
// Not thread-safe: its owner has a lock.
#pragma once

#include <c10/core/Storage.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace ac2::internal {

class OutsideBytes {
 public:
  void add(const c10::Storage& storage);
  void remove(const c10::Storage& storage);

  // Bytes of all that was added. ours() is never more than that.
  int64_t most() const { return most_; }
  // The bytes of the tensors that only tapes keep alive. LibTorch does not tell when the program drops a tensor.
  // So each call looks at the reference counts of up to 64 storages. If there are more, a tensor that the program has
  // dropped begins to count some calls later.
  int64_t ours();
  // The result of the last call of ours().
  int64_t last_ours() const { return ours_; }

 private:
  struct Entry {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    int64_t nbytes;
    int32_t holds;
    bool ours;
  };

  void look_at(Entry& entry);

  std::vector<Entry> entries_;
  // Addresses are not reused here: while there is an entry, somebody holds the storage.
  absl::flat_hash_map<const c10::StorageImpl*, size_t> places_;
  size_t cursor_ = 0;
  int64_t most_ = 0;
  int64_t ours_ = 0;
};

}  // namespace ac2::internal

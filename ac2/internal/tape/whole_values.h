// The sparse, nested and quantised tensors that a region has taken, by the storages in which their bytes lie: whoever
// writes to such a storage, through whatever tensor, must tell the region first.
//
//   whole.add(value, tensor);                       // the region has met the tensor
//   for (Value* value : whole.over(storage)) …      // those that a write to the storage changes
//   for (const auto& tape : tapes_with_whole_values_over(storage)) …     // of the whole process
//
// A value is in here from the moment that its region meets the tensor, until it dies or has a copy of its own.
//
// Threads: WholeValues are guarded by the tape's lock, the functions may be called from any thread without one.
#pragma once

#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>
#include <c10/util/SmallVector.h>

#include <memory>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "ac2/internal/graph/value.h"
#include "ac2/internal/tape/storage_tapes.h"

namespace ac2::internal {

class WholeValues {
 public:
  using Values = c10::SmallVector<Value*, 1>;

  // Whose these are. To be called once, before all else.
  void set_tape(std::weak_ptr<Tape> tape) { tape_ = std::move(tape); }
  // `form` is that of `value`. Does nothing if nobody knows where the bytes of `tensor` lie.
  void add(Value* value, OpaqueForm& form, const c10::TensorImpl& tensor);
  // Does nothing to a value that is not in here.
  void remove(Value* value, OpaqueForm& form);
  // Without references of their own.
  Values over(const c10::StorageImpl* storage) const;

 private:
  std::weak_ptr<Tape> tape_;
  absl::flat_hash_map<const c10::StorageImpl*, Values> values_;
};

StorageTapes::Found tapes_with_whole_values_over(const c10::StorageImpl* storage);
// Costs one look; see StorageTapes::is_empty().
bool are_there_whole_values();

}  // namespace ac2::internal

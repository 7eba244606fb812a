// Which value each storage holds now.
//
//   Value* value = index.current(tensor);       // made, as one from outside, if the tape does not know it
//   Value* value = index.read(tensor);          // the same for one who reads the bytes
//   if (Value* made = index.add_made(tensor)) … // a result
//   index.forget(storage);                      // the storage is about to be written
//
// References to storages are weak: the entry of a dead one goes when a sweep meets it. Each entry is a reference to its
// value.
//
// Threads: guarded by the tape's lock.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>
#include <c10/util/SmallVector.h>

#include <cstddef>

#include "absl/container/flat_hash_map.h"
#include "ac2/internal/graph/node.h"
#include "ac2/internal/tape/lifetimes.h"
#include "ac2/internal/tape/offloading.h"
#include "ac2/internal/tape/shared_storages.h"
#include "ac2/internal/tape/storage_map.h"
#include "ac2/internal/tape/unpacked_storages.h"
#include "ac2/internal/tape/value_bytes.h"
#include "ac2/internal/tape/whole_values.h"

namespace ac2::internal {

class StorageIndex {
 public:
  StorageIndex(Lifetimes& lifetimes, ValueBytes& bytes, Offloading& offloading, SharedStorages& shared,
               WholeValues& whole)
      : lifetimes_(lifetimes),
        bytes_(bytes),
        offloading_(offloading),
        shared_(shared),
        whole_(whole),
        unpacked_(lifetimes) {}

  // A saved value from outside is made if the tape does not know the tensor's storage, or if that has changed unseen.
  // `tensor` must be defined.
  Value* current(const at::Tensor& tensor);
  // The same for an op or a hook that wants the bytes as they are now, and wherever they are: a value that was unpacked
  // into the storage of the tensor is that value.
  Value* read(const at::Tensor& tensor);
  // The same for a tensor that is known to have a plain storage.
  Value* read_plain(const at::Tensor& tensor);
  // Null if the tape does not know it, or if it has changed unseen.
  Value* find(const at::Tensor& tensor);
  // A backward inside the region is about to be given `tensor`, which has a plain storage with the bytes of `value`.
  void was_unpacked(const at::Tensor& tensor, Value* value);
  // The storage of `tensor` is about to be written: it stands for no value that was unpacked there any more.
  void forget_unpacked(const at::Tensor& tensor) { unpacked_.forget(storage_of(tensor)); }
  // The value that the index has for the plain storage of `tensor`, changed or not; null if none. Notes nothing.
  const Value* peek(const at::Tensor& tensor) const;

  // A new value for a plain storage that an op has made, or null if the index knows that storage.
  Value* add_made(const at::Tensor& tensor);
  // A new value for a storage that an op has just written, and that the index has forgotten. Its version is noted when
  // it is first used: ADInplaceOrView counts it only after the op.
  Value* add_written(const at::Tensor& tensor);
  // A collective has returned the tensor and may not have written it yet. Until has_come() the tensor stands for one
  // value, whatever its version says. Otherwise each look would make a value anew, and each hook would have another.
  void is_coming(const at::Tensor& tensor);
  // The program has waited for the tensor, so that the collective has written all of it. From now on a version that has
  // changed tells of a write.
  void has_come(const at::Tensor& tensor);
  // The storage is about to be written, so the value that it held is no longer there.
  void forget(c10::StorageImpl* storage);

  // A tensor has left this storage for another one. If nobody but the tape has the storage, now or at the end of the
  // next op, nothing can be written there any more, and its versions are no longer watched.
  void was_left(const c10::StorageImpl* storage);

  // The same as forget() for a tensor without plain storage.
  void forget_opaque(const at::Tensor& tensor) { forget_opaque(tensor.unsafeGetTensorImpl()); }
  // The same, if the index still has `value` for its tensor.
  void forget_opaque(const Value& value);
  // A new value for the tensor that `old` holds whole, with the versions that `old` had noted. The index does not know
  // it.
  Value* add_same_opaque(const Value& old);

  // A name may yet decide that a saved value is recomputed, so what computed a saved value is known even after it died.
  void set_names_decide(bool names_decide) { names_decide_ = names_decide; }
  // Forgets values whose storages have died. At the end of an op, not while it is being recorded, because a value that
  // dies may keep bytes that the op's node is about to use.
  //
  // Where all results are saved, a value that dies here may be the last that wanted a storage before it, which then
  // dies with the lock, and so on along a chain that may be as long as the region. ValueBytes tells of those, so that
  // each node that is recorded takes a chain apart by one link at least; sweeps alone would take one link each.
  void drop_dead() {
    if (!dead_.empty() || bytes_.has_let_go() || !left_.empty() || map_.settled().size() >= sweep_at_) {
      drop_some_dead();
    }
  }
  // Forgets all dead values at once.
  void sweep();
  // The region is over: only what hooks need stays. The storages of these values that others have too go into
  // SharedStorages.
  void close();

  template <class Fn>
  void for_each(Fn&& fn) const {
    map_.for_each(fn);
  }
  // Those of the values that were unpacked. They may also be among the others.
  template <class Fn>
  void for_each_unpacked(Fn&& fn) const {
    unpacked_.for_each(fn);
  }
  // Values that were unpacked are looked for no more.
  void clear_unpacked() { unpacked_.clear(); }

 private:
  static c10::StorageImpl* storage_of(const at::Tensor& tensor) {
    return tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
  }
  Value* current_plain(const at::Tensor& tensor);
  // The same as find(), for a tensor with a plain storage.
  Value* find_plain(const at::Tensor& tensor);
  Value* add_outside(const at::Tensor& tensor);
  Value* add_without_offloading(const at::Tensor& tensor);
  Value* current_opaque(const at::Tensor& tensor, bool create);
  void forget_opaque(c10::TensorImpl* tensor);
  void add_young(Value* value);
  void remove(Value* value);
  // False if somebody else has the value's storage.
  static bool stop_watching_if_ours(Value& value);
  void look_at_left();
  // The storage of `value` has died, and the value is no longer in the map.
  void forget_dead(Value* value);
  bool forget_if_dead(Value* value);
  void drop_some_dead();
  void drop_let_go();
  void sweep_settled();

  static constexpr size_t kLeastSwept = 64;

  Lifetimes& lifetimes_;
  ValueBytes& bytes_;
  Offloading& offloading_;
  SharedStorages& shared_;
  WholeValues& whole_;
  StorageMap map_;
  UnpackedStorages unpacked_;
  c10::SmallVector<Value*, 8> dead_;  // that were in map_
  c10::SmallVector<Value*, 1> left_;  // whose storages somebody else had when a tensor left them, since the last op
  size_t sweep_at_ = kLeastSwept;     // when so many are settled
  absl::flat_hash_map<c10::TensorImpl*, Value*> opaque_;
  bool names_decide_ = false;
};

}  // namespace ac2::internal

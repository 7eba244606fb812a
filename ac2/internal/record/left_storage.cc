#include "ac2/internal/record/left_storage.h"

#include "ac2/internal/libtorch/tensor_meta.h"

namespace ac2::internal {

namespace {

c10::weak_intrusive_ptr<c10::StorageImpl> storage_of(const at::TensorBase& tensor) {
  if (!tensor.defined() || !has_plain_storage(*tensor.unsafeGetTensorImpl())) {
    return c10::weak_intrusive_ptr<c10::StorageImpl>(c10::intrusive_ptr<c10::StorageImpl>());
  }
  return tensor.storage().getWeakStorageImpl();
}

}  // namespace

LeftStorage::LeftStorage(const at::TensorBase& tensor) : tensor_(tensor), storage_(storage_of(tensor)) {}

void LeftStorage::stop_watching(Tape& tape) const {
  const c10::StorageImpl* storage = storage_._unsafe_get_target();
  if (storage == nullptr || tensor_.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl() == storage) {
    return;
  }
  const Tape::Lock locked(tape);
  locked->storages().was_left(storage);
}

}  // namespace ac2::internal

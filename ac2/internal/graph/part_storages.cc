#include "ac2/internal/graph/part_storages.h"

#include <ATen/NestedTensorImpl.h>
#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/SparseTensorImpl.h>
#include <ATen/core/Tensor.h>

namespace ac2::internal {

namespace {

// Of a sparse tensor.
PartTensors components(const c10::TensorImpl& tensor) {
  if (const auto* coo = dynamic_cast<const at::SparseTensorImpl*>(&tensor)) {
    return {coo->values(), coo->indices()};
  }
  if (const auto* compressed = dynamic_cast<const at::SparseCsrTensorImpl*>(&tensor)) {
    return {compressed->values(), compressed->compressed_indices(), compressed->plain_indices()};
  }
  return {};
}

const at::native::NestedTensorImpl* nested_with_storage(const c10::TensorImpl& tensor) {
  const auto* nested = dynamic_cast<const at::native::NestedTensorImpl*>(&tensor);
  return nested != nullptr && nested->unsafe_storage() ? nested : nullptr;
}

}  // namespace

PartStorages part_storages(const c10::TensorImpl& tensor) {
  if (tensor.key_set().has(c10::DispatchKey::Python)) {
    return {};
  }
  if (tensor.key_set().has_any(c10::DispatchKeySet(c10::DispatchKey::Quantized)) || nested_with_storage(tensor)) {
    return tensor.unsafe_storage() ? PartStorages{tensor.unsafe_storage()} : PartStorages();
  }
  PartStorages storages;
  for (const at::Tensor& part : components(tensor)) {
    if (part.defined() && part.has_storage()) {
      storages.push_back(part.storage());
    }
  }
  return storages;
}

PartTensors part_tensors(const c10::TensorImpl& tensor) {
  if (tensor.key_set().has(c10::DispatchKey::Python)) {
    return {};
  }
  const at::native::NestedTensorImpl* nested = nested_with_storage(tensor);
  return nested != nullptr ? PartTensors{nested->get_unsafe_storage_as_tensor()} : components(tensor);
}

}  // namespace ac2::internal

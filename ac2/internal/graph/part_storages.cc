#include "ac2/internal/graph/part_storages.h"

#include <ATen/NestedTensorImpl.h>
#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/SparseTensorImpl.h>
#include <ATen/core/Tensor.h>

#include <initializer_list>

namespace ac2::internal {

namespace {

PartStorages storages_of(std::initializer_list<at::Tensor> parts) {
  PartStorages storages;
  for (const at::Tensor& part : parts) {
    if (part.defined() && part.has_storage()) {
      storages.push_back(part.storage());
    }
  }
  return storages;
}

}  // namespace

PartStorages part_storages(const c10::TensorImpl& tensor) {
  if (tensor.key_set().has(c10::DispatchKey::Python)) {
    return {};
  }
  if (const auto* coo = dynamic_cast<const at::SparseTensorImpl*>(&tensor)) {
    return storages_of({coo->values(), coo->indices()});
  }
  if (const auto* compressed = dynamic_cast<const at::SparseCsrTensorImpl*>(&tensor)) {
    return storages_of({compressed->values(), compressed->compressed_indices(), compressed->plain_indices()});
  }
  const bool has_one = dynamic_cast<const at::native::NestedTensorImpl*>(&tensor) != nullptr ||
                       tensor.key_set().has_any(c10::DispatchKeySet(c10::DispatchKey::Quantized));
  return has_one && tensor.unsafe_storage() ? PartStorages{tensor.unsafe_storage()} : PartStorages();
}

}  // namespace ac2::internal

// The storages in which a sparse, nested or quantised tensor has its bytes.
//
// A region holds such a tensor whole. A tensor over one of these storages (`values()`, a slice, `.data`) is another
// tensor, and a write to it changes what the region holds.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>
#include <c10/core/TensorImpl.h>
#include <c10/util/SmallVector.h>

namespace ac2::internal {

using PartStorages = c10::SmallVector<c10::Storage, 3>;

// Empty for all other tensors, those of classes of Python's among them. Runs no op.
PartStorages part_storages(const c10::TensorImpl& tensor);

using PartTensors = c10::SmallVector<at::Tensor, 3>;

// Tensors over these storages, such as values() gives. Empty for a quantised tensor too, over whose storage no op makes
// one.
PartTensors part_tensors(const c10::TensorImpl& tensor);

}  // namespace ac2::internal

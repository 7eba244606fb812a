// Errors for tensors that were saved and then written to where the region could not see it.
#pragma once

#include <c10/core/TensorImpl.h>

#include <cstdint>

#include "ac2/internal/graph/node.h"

namespace ac2::internal {

// The words of PyTorch's own error, for which people search.
inline constexpr const char* kModifiedInPlace =
    "one of the variables needed for gradient computation has been modified by an inplace operation: ";

// Throws c10::Error if the bytes that `value` holds, or its original, have changed since they were saved.
void check_unchanged(const Value& value);
// Throws c10::Error if a leaf whose data the program has exchanged since it was saved has been written to, as plain
// autograd does: its version must be the one that it had then.
void check_version_of_leaf(const c10::TensorImpl& leaf, uint32_t expected);
// The same as check_unchanged() for what was offloaded: nobody can say whether the bytes were copied before the change
// or after it.
void check_offloaded_unchanged(const Value& value);
// As check_unchanged(), for a tensor without plain storage.
void check_opaque_unchanged(const Value& value);

}  // namespace ac2::internal

// Errors about tensors that were saved and then written to where the region could not see it.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>
#include <c10/util/Exception.h>

#include <cstdint>
#include <string>

#include "ac2/internal/graph/node.h"

namespace ac2::internal {

// The words of PyTorch's own error, for which people search.
inline constexpr const char* kModifiedInPlace =
    "one of the variables needed for gradient computation has been modified by an inplace operation: ";

// The error of check_unchanged(), thrown under the tape's lock. Where the lock has been let go of, replay/whose_write.h
// adds whose bytes these are: the names of a program's parameters may have to be asked of Python.
class ModifiedInPlace : public c10::Error {
 public:
  ModifiedInPlace(c10::SourceLocation where, std::string text, const Value& value)
      : c10::Error(where, std::move(text)), value_(&value), storage_(value.watched_storage()) {}

  // To compare with alone: both may be gone.
  const Value* value() const { return value_; }
  const c10::StorageImpl* storage() const { return storage_; }

 private:
  const Value* value_;
  const c10::StorageImpl* storage_;
};

// Throws ModifiedInPlace if the bytes that `value` holds, or its original, have changed since they were saved.
void check_unchanged(const Value& value);
// For a leaf whose data the program has exchanged since the leaf was saved. Throws c10::Error, as plain autograd does,
// if the leaf does not have the version that it had when it was saved: then somebody has written to it.
void check_version_of_leaf(const c10::TensorImpl& leaf, uint32_t expected);
// The same as check_unchanged() for what was offloaded: nobody can say whether the bytes were copied before the change
// or after it.
void check_offloaded_unchanged(const Value& value);
// As check_unchanged(), for a tensor without plain storage.
void check_opaque_unchanged(const Value& value);
// Before a replay reads it: also what no version counts, as far as parts_sample() sees it. What autograd has saved
// itself follows such a write, as in plain PyTorch.
void check_parts_unchanged(const Value& value);
// The same for a tensor with plain storage, which a replay of `node` is about to read as `input`: throws
// ModifiedInPlace if its bytes are not those that forward read, as far as read_sample() sees it.
void check_read_again(const Node& node, const NodeInput& input, const at::Tensor& tensor);

}  // namespace ac2::internal

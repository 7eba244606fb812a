// Tensors that are made of other tensors by code of another language: PyTorch's wrapper subclasses (DTensor,
// NestedTensor, a user's own). A region records the ops on their parts, so that a hook on such a tensor is hooks on
// its parts.
//
// A host language has a codec (HostLanguage::subclasses); a C++ program has none, and no such tensors.
//
// Threads: any. A codec may take Python's lock, so that it is never called under a tape's.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>

#include <optional>
#include <string>
#include <vector>

namespace ac2::internal {

class SubclassCodec {
 public:
  struct Parts {
    std::vector<at::Tensor> tensors;
    c10::IValue context;  // all else that it takes to put them together
  };

  virtual ~SubclassCodec() = default;
  // Nothing for a tensor that cannot be taken apart.
  virtual std::optional<Parts> take_apart(const at::Tensor& tensor) const = 0;
  // The class of a tensor that is about to be held whole, or nothing if the tensor is of no such class. The first of
  // each class is warned of.
  virtual std::string note_whole(const at::Tensor& tensor) const = 0;
  virtual at::Tensor put_together(c10::ArrayRef<at::Tensor> parts, const c10::IValue& context) const = 0;
};

// Null if there is none.
const SubclassCodec* subclass_codec();

}  // namespace ac2::internal

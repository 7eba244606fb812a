#include "ac2/internal/libtorch/freed_quietly.h"

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/Storage.h>

#include <vector>

#include "ac2/internal/libtorch/cpu_deleters.h"
#include "ac2/internal/libtorch/reference_counts.h"
#include "ac2/internal/libtorch/torch_compat.h"

namespace ac2::internal {

namespace {

bool tensor_is_freed_quietly(const at::Tensor& tensor) {
  if (!is_referred_to_by(tensor, 1) || has_python_object(*tensor.unsafeGetTensorImpl()) || !tensor.has_storage()) {
    return false;
  }
  const c10::Storage& storage = tensor.storage();
  return is_referred_to_by(storage, 1) && is_freed_quietly(*storage.unsafeGetStorageImpl());
}

}  // namespace

bool is_freed_quietly(c10::StorageImpl& storage) {
  const c10::Allocator* allocator = storage.allocator();
  if (allocator == nullptr || has_python_object(storage)) {
    return false;
  }
  const c10::DeleterFnPtr deleter = storage.data_ptr().get_deleter();
  return deleter == allocator->raw_deleter() || is_cpu_deleter(deleter);
}

std::optional<QuietBytes> bytes_freed_quietly(const c10::IValue& packed) {
  std::optional<QuietBytes> bytes;
  std::vector<const c10::IValue*> parts = {&packed};
  while (!parts.empty()) {
    const c10::IValue& part = *parts.back();
    parts.pop_back();
    if (!part.isPtrType()) {
      continue;  // a number, a device or the like
    }
    if (part.isTensor()) {
      const at::Tensor& tensor = part.toTensor();
      if (!tensor_is_freed_quietly(tensor)) {
        return std::nullopt;
      }
      const c10::Storage& storage = tensor.storage();
      if (bytes && bytes->device != storage.device()) {
        return std::nullopt;
      }
      bytes = QuietBytes{.count = (bytes ? bytes->count : 0) + static_cast<int64_t>(storage.nbytes()),
                         .device = storage.device()};
    } else if ((part.isTuple() || part.isList()) && is_referred_to_by(part, 1)) {
      const c10::ArrayRef<c10::IValue> inner =
          part.isTuple() ? part.toTupleRef().elements().asArrayRef() : part.toListRef();
      for (const c10::IValue& element : inner) {
        parts.push_back(&element);
      }
    } else {
      return std::nullopt;
    }
  }
  return bytes;
}

}  // namespace ac2::internal

#include "ac2/internal/replay/value_tensor.h"

#include <c10/util/Exception.h>

#include "ac2/internal/libtorch/stream_order.h"
#include "ac2/internal/tape/outside_writes.h"

namespace ac2::internal {

void order_use_of(Value& value, const c10::Storage& bytes) {
  if (value.stream != kNoStream) {
    value.stream = order_use(bytes, value.stream);
  }
}

at::Tensor tensor_of(LockedTape& tape, Value* value, const TensorMeta* meta) {
  if (const OpaqueForm* form = value->opaque_form()) {
    check_opaque_unchanged(*value);
    return form->held;
  }
  const c10::Storage& storage = tape.bytes().checked(*value);
  order_use_of(*value, storage);
  if (const at::Tensor& replayed = value->replayed_tensor();
      replayed.defined() && meta->describes(*replayed.unsafeGetTensorImpl())) {
    return replayed;
  }
  TORCH_CHECK(storage.nbytes() >= meta->needed_bytes(), kModifiedInPlace, "its storage was resized to ",
              storage.nbytes(), " bytes; expected at least ", meta->needed_bytes(), ".");
  return meta->over(storage);
}

}  // namespace ac2::internal

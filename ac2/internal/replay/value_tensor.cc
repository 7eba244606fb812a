#include "ac2/internal/replay/value_tensor.h"

#include <c10/macros/Macros.h>
#include <c10/util/Exception.h>

#include <cstdint>

#include "ac2/internal/libtorch/stream_order.h"
#include "ac2/internal/tape/outside_writes.h"

namespace ac2::internal {

namespace {

// Where the managed tensor has moved, the views of it have too.
C10_NOINLINE at::Tensor over_managed(const ManagedForm& form, const c10::Storage& storage, const TensorMeta& meta) {
  const ManagedLayout found = form.tensor->layout();
  TORCH_CHECK(found == form.layout, "Backward needs the parameter ", form.tensor->name, " as forward has read it, ",
              form.layout, "; found ", found, ". Its manager must give it the same type and layout in backward.");
  const int64_t moved = form.tensor->moves ? form.tensor->storage_offset() - form.storage_offset : 0;
  const auto needed = static_cast<int64_t>(meta.needed_bytes()) + moved * static_cast<int64_t>(meta.itemsize());
  TORCH_CHECK(static_cast<int64_t>(storage.nbytes()) >= needed, "Backward needs ", needed, " bytes of the parameter ",
              form.tensor->name, "; found ", storage.nbytes(),
              ". It must have the same size and layout in backward as in forward.");
  at::Tensor tensor = meta.over(storage);
  if (moved != 0) {
    tensor.unsafeGetTensorImpl()->set_storage_offset(meta.storage_offset() + moved);
  }
  return tensor;
}

}  // namespace

void order_use_of(Value& value, const c10::Storage& bytes) {
  if (value.stream() != kNoStream) {
    value.set_stream(order_use(bytes, value.stream()));
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
  if (const ManagedForm* managed = value->managed_form(); C10_UNLIKELY(managed != nullptr)) {
    return over_managed(*managed, storage, *meta);
  }
  TORCH_CHECK(storage.nbytes() >= meta->needed_bytes(), kModifiedInPlace, "its storage was resized to ",
              storage.nbytes(), " bytes; expected at least ", meta->needed_bytes(), ".");
  return meta->over(storage);
}

}  // namespace ac2::internal

#include "ac2/internal/tape/packing.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty_strided.h>
#include <c10/util/Exception.h>

#include <utility>

#include "ac2/internal/libtorch/storage_copy.h"
#include "ac2/internal/libtorch/stream_order.h"
#include "ac2/internal/libtorch/unrecorded.h"
#include "ac2/internal/tape/verifier.h"

namespace ac2::internal {

namespace {

// Of the tensors in it that are not hidden in an object of the user's.
template <class Fn>
void for_each_storage(const c10::IValue& packed, const Fn& fn) {
  if (packed.isTensor()) {
    const at::Tensor& tensor = packed.toTensor();
    if (tensor.defined() && tensor.has_storage()) {
      fn(tensor.storage());
    }
  } else if (packed.isTuple()) {
    for (const c10::IValue& element : packed.toTupleRef().elements()) {
      for_each_storage(element, fn);
    }
  } else if (packed.isList()) {
    for (const c10::IValue& element : packed.toListRef()) {
      for_each_storage(element, fn);
    }
  }
}

int64_t bytes_of(const c10::IValue& packed) {
  int64_t bytes = 0;
  for_each_storage(packed, [&](const c10::Storage& storage) { bytes += static_cast<int64_t>(storage.nbytes()); });
  return bytes;
}

// Pack ran on the stream that wanted the value first; the current one may never have waited for that.
void order_after_pack(const OtherForm& form) {
  if (form.packed_on != kNoStream) {
    order_after(form.packed_meta.device(), form.packed_on);
    for_each_storage(form.packed, keep_until_read);
  }
}

}  // namespace

void pack_values(Tape& tape, const c10::SmallVector<Value*, 2>& values) {
  size_t done = 0;
  try {
    for (; done < values.size(); ++done) {
      Value* value = values[done];
      std::shared_ptr<const SaveWithHooks> hooks;
      at::Tensor tensor;
      {
        const Tape::Lock lock(tape);
        if (value->held && value->has_hooks() && !value->other->is_packed && !value->other->is_packing) {
          hooks = value->other->hooks;
          tensor = value->other->packed_meta.over(value->held);
          value->other->is_packing = true;
        }
      }
      c10::IValue packed;
      if (hooks && tape.verifier() != nullptr) {
        note_packed(tape, *value, tensor);
      }
      if (hooks) {
        const Unrecorded guard;
        packed = hooks->pack(tensor);
      }
      const Tape::Lock lock(tape);
      if (hooks) {
        value->other->is_packing = false;
        if (value->other->is_offload && packed.isNone()) {
          tape.keep_in_place(value);
        } else {
          if (!value->other->is_offload) {
            value->other->packed_on = current_stream(tensor.storage());
          }
          const int64_t packed_bytes = bytes_of(packed);
          tape.set_packed(value, std::move(packed), packed_bytes);
        }
      }
      tape.unref(value);
    }
  } catch (...) {
    const Tape::Lock lock(tape);
    if (values[done]->has_hooks()) {
      values[done]->other->is_packing = false;
    }
    for (; done < values.size(); ++done) {
      tape.unref(values[done]);
    }
    throw;
  }
}

c10::Storage unpack_value(const Value& value) {
  const OtherForm& form = *value.other;
  const std::string op = value.producer != nullptr ? "the result of " + value.producer->facts->name
                                                   : "a tensor that was tagged or written to";
  const Unrecorded guard;
  order_after_pack(form);
  const at::Tensor tensor = form.hooks->unpack(form.packed);
  const TensorMeta& meta = form.packed_meta;
  TORCH_CHECK(tensor.defined(), "The unpack hook of a SaveWithHooks for ", op,
              " returned an undefined tensor; expected one of sizes ", meta.sizes(), " and dtype ", meta.dtype(),
              ". Return what pack was given.");
  TORCH_CHECK(tensor.sizes() == meta.sizes() && tensor.scalar_type() == meta.dtype() &&
                  tensor.device() == meta.device() && has_plain_storage(*tensor.unsafeGetTensorImpl()),
              "The unpack hook of a SaveWithHooks for ", op, " returned a tensor of sizes ", tensor.sizes(), ", dtype ",
              tensor.scalar_type(), " on ", tensor.device(), "; expected sizes ", meta.sizes(), ", dtype ",
              meta.dtype(), " on ", meta.device(), ", as pack was given. Convert it in unpack.");
  const bool is_as_stored = !tensor.is_conj() && !tensor.is_neg();
  if (is_as_stored && meta.has_layout_of(*tensor.unsafeGetTensorImpl())) {
    return tensor.storage();
  }
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  // Offset 0 and dense, like every tensor that is packed.
  at::Tensor same_layout = at::empty_strided(meta.sizes(), meta.strides(), tensor.options());
  same_layout.copy_(tensor);
  return same_layout.storage();
}

}  // namespace ac2::internal

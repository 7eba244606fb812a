// A tensor without its storage. A TensorMeta has all that must be known to see the same elements again in another copy
// of the bytes.
//
//   const TensorMeta meta(*tensor.unsafeGetTensorImpl());
//   at::Tensor again = meta.over(copy_of_its_storage);
//
// Threads: a TensorMeta is a value; const functions may run at the same time.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/ScalarTypeToTypeMeta.h>
#include <c10/core/Storage.h>
#include <c10/core/TensorImpl.h>
#include <c10/core/impl/SizesAndStrides.h>
#include <c10/util/typeid.h>

#include <cstddef>
#include <cstdint>

#include "ac2/internal/libtorch/torch_compat.h"

namespace ac2::internal {

// Whether `impl` is nothing but strided elements in a storage. Other tensors (sparse, nested, quantized, opaque, fake,
// subclasses, symbolic shapes) are told apart by their TensorImpl, and are always saved whole.
inline bool has_plain_storage(const c10::TensorImpl& impl) {
  constexpr c10::DispatchKeySet not_plain(
      {c10::DispatchKey::Sparse, c10::DispatchKey::SparseCsr, c10::DispatchKey::Quantized,
       c10::DispatchKey::NestedTensor, c10::DispatchKey::Python, c10::DispatchKey::MkldnnCPU, c10::DispatchKey::Vulkan,
       c10::DispatchKey::Metal, c10::DispatchKey::ZeroTensor, c10::DispatchKey::FuncTorchBatched,
       c10::DispatchKey::FuncTorchGradWrapper, c10::DispatchKey::Batched, c10::DispatchKey::Functionalize, kRecordKey});
  return impl.unsafe_storage() && !impl.key_set().has_any(not_plain) && !impl.has_symbolic_sizes_strides();
}

// The same; false if `tensor` is undefined.
inline bool has_plain_storage(const at::Tensor& tensor) {
  return tensor.defined() && has_plain_storage(*tensor.unsafeGetTensorImpl());
}

class TensorMeta {
 public:
  TensorMeta() = default;
  // `impl` must have a plain storage.
  explicit TensorMeta(const c10::TensorImpl& impl);

  c10::IntArrayRef sizes() const { return sizes_and_strides_.sizes_arrayref(); }
  c10::IntArrayRef strides() const { return sizes_and_strides_.strides_arrayref(); }
  int64_t storage_offset() const { return storage_offset_; }  // in elements
  c10::Device device() const { return device_; }
  size_t itemsize() const { return dtype_.itemsize(); }
  // TypeMeta's own toScalarType() is not const in all versions.
  c10::ScalarType dtype() const { return c10::typeMetaToScalarType(dtype_); }
  // The bytes of the storage up to the end of the last element.
  size_t needed_bytes() const { return needed_bytes_; }
  // Whether sizes, strides and offset are those of `impl`.
  bool has_layout_of(const c10::TensorImpl& impl) const {
    const c10::IntArrayRef sizes = impl.sizes(), strides = impl.strides();
    bool same = impl.storage_offset() == storage_offset_ && sizes.size() == sizes_and_strides_.size();
    // Most tensors have few dimensions, for which a call of memcmp would take longer.
    for (size_t d = 0; same && d < sizes.size(); ++d) {
      same = sizes[d] == sizes_and_strides_.size_at_unchecked(d) &&
             strides[d] == sizes_and_strides_.stride_at_unchecked(d);
    }
    return same;
  }
  // Whether everything is that of `impl`.
  bool describes(const c10::TensorImpl& impl) const {
    return impl.key_set() == key_set_ && impl.dtype() == dtype_ && impl.device() == device_ &&
           impl.is_wrapped_number() == wrapped_number_ && has_layout_of(impl);
  }
  // A hash of what describes() compares.
  static size_t hash(const c10::TensorImpl& impl);
  // Whether the elements are every byte of a storage of `nbytes`, each once.
  bool covers(size_t nbytes) const;

  // Whether the two may have a byte in common, if both are of one storage. Exact for what narrow(), select(), chunk()
  // and slices with a step make of one tensor. For others it may be true although they have none in common.
  bool may_overlap(const TensorMeta& other) const;

  // The same elements as they lie in memory: without lazy conjugation and negation.
  TensorMeta as_stored() const;
  // A tensor of one dimension over all of a storage of `nbytes`.
  TensorMeta flattened(size_t nbytes) const;

  // A tensor without autograd history over `storage`, which must be large enough.
  at::Tensor over(const c10::Storage& storage) const;

 private:
  size_t count_needed_bytes() const;

  c10::impl::SizesAndStrides sizes_and_strides_;
  int64_t storage_offset_ = 0;
  size_t needed_bytes_ = 0;  // counted once, because each unpack asks for it
  c10::DispatchKeySet key_set_;
  caffe2::TypeMeta dtype_;
  c10::Device device_ = c10::kCPU;
  bool wrapped_number_ = false;
};

// All elements of the storage of `nbytes` in which `tensor` lies, as they lie in memory: in the tensor's own layout
// where that has each of them once, else in one dimension.
TensorMeta meta_of_storage(const at::Tensor& tensor, size_t nbytes);

}  // namespace ac2::internal

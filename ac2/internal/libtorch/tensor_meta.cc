#include "ac2/internal/libtorch/tensor_meta.h"

#include <c10/core/TensorImpl.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <optional>
#include <utility>

namespace ac2::internal {

TensorMeta::TensorMeta(const c10::TensorImpl& impl)
    : storage_offset_(impl.storage_offset()),
      key_set_(impl.key_set()),
      dtype_(impl.dtype()),
      device_(impl.device()),
      wrapped_number_(impl.is_wrapped_number()) {
  const c10::IntArrayRef sizes = impl.sizes();
  sizes_and_strides_.resize(sizes.size());
  sizes_and_strides_.set_sizes(sizes);
  sizes_and_strides_.set_strides(impl.strides());
  needed_bytes_ = count_needed_bytes();
}

size_t TensorMeta::count_needed_bytes() const {
  int64_t last = storage_offset_;
  for (size_t d = 0; d < sizes_and_strides_.size(); ++d) {
    const int64_t size = sizes_and_strides_.size_at_unchecked(d);
    if (size == 0) {
      return 0;
    }
    last += (size - 1) * sizes_and_strides_.stride_at_unchecked(d);
  }
  return static_cast<size_t>(last + 1) * dtype_.itemsize();
}

size_t TensorMeta::hash(const c10::TensorImpl& impl) {
  // A cheap hash is good enough to tell the shapes of one model apart.
  uint64_t hash = static_cast<uint64_t>(impl.storage_offset()) * 31 + static_cast<uint64_t>(impl.dtype().itemsize());
  for (const int64_t size : impl.sizes()) {
    hash = hash * 0x9E3779B97F4A7C15 + static_cast<uint64_t>(size);
  }
  for (const int64_t stride : impl.strides()) {
    hash = hash * 0x9E3779B97F4A7C15 + static_cast<uint64_t>(stride);
  }
  return hash ^ (hash >> 32);
}

bool TensorMeta::covers(size_t nbytes) const {
  c10::SmallVector<std::pair<int64_t, int64_t>, 8> stride_and_size;
  int64_t numel = 1;
  for (size_t d = 0; d < sizes_and_strides_.size(); ++d) {
    const int64_t size = sizes_and_strides_.size_at_unchecked(d);
    numel *= size;
    if (size != 1) {
      stride_and_size.emplace_back(sizes_and_strides_.stride_at_unchecked(d), size);
    }
  }
  if (storage_offset_ != 0 || static_cast<size_t>(numel) * dtype_.itemsize() != nbytes) {
    return false;
  }
  std::sort(stride_and_size.begin(), stride_and_size.end());
  int64_t dense_stride = 1;
  for (const auto& [stride, size] : stride_and_size) {
    if (stride != dense_stride) {
      return false;
    }
    dense_stride *= size;
  }
  return true;
}

namespace {

// The bytes [begin, end) of a storage, or of each period of it.
struct ByteRange {
  int64_t begin = 0;
  int64_t end = 0;
};

// Where the elements lie if each byte's position is taken modulo `period`, or nothing if that wraps around. If `period`
// is 0, positions are taken as they are.
std::optional<ByteRange> bytes_modulo(const TensorMeta& meta, int64_t period) {
  const auto itemsize = static_cast<int64_t>(meta.itemsize());
  ByteRange range{meta.storage_offset() * itemsize, 0};
  int64_t length = itemsize;
  for (size_t d = 0; d < meta.sizes().size(); ++d) {
    const int64_t stride = meta.strides()[d] * itemsize;
    if (period == 0 || stride % period != 0) {
      length += (meta.sizes()[d] - 1) * stride;
    }
  }
  if (period != 0) {
    range.begin %= period;
  }
  range.end = range.begin + length;
  return period == 0 || range.end <= period ? std::optional(range) : std::nullopt;
}

bool apart(const TensorMeta& a, const TensorMeta& b, int64_t period) {
  const std::optional<ByteRange> of_a = bytes_modulo(a, period), of_b = bytes_modulo(b, period);
  return of_a && of_b && (of_a->end <= of_b->begin || of_b->end <= of_a->begin);
}

}  // namespace

bool TensorMeta::may_overlap(const TensorMeta& other) const {
  if (needed_bytes() == 0 || other.needed_bytes() == 0 || apart(*this, other, 0)) {
    return false;
  }
  for (const TensorMeta* meta : {this, &other}) {
    for (const int64_t stride : meta->strides()) {
      const int64_t period = stride * static_cast<int64_t>(meta->itemsize());
      if (period > 0 && apart(*this, other, period)) {
        return false;
      }
    }
  }
  return true;
}

TensorMeta TensorMeta::as_stored() const {
  TensorMeta stored = *this;
  stored.key_set_ = key_set_ - c10::DispatchKeySet({c10::DispatchKey::Conjugate, c10::DispatchKey::Negative});
  return stored;
}

TensorMeta TensorMeta::flattened(size_t nbytes) const {
  TensorMeta flat = *this;
  flat.storage_offset_ = 0;
  flat.wrapped_number_ = false;
  flat.sizes_and_strides_.resize(1);
  flat.sizes_and_strides_.size_at_unchecked(0) = static_cast<int64_t>(nbytes / dtype_.itemsize());
  flat.sizes_and_strides_.stride_at_unchecked(0) = 1;
  flat.needed_bytes_ = flat.count_needed_bytes();
  return flat;
}

at::Tensor TensorMeta::over(const c10::Storage& storage) const {
  at::Tensor tensor =
      at::Tensor(at::detail::make_tensor_base<c10::TensorImpl>(c10::Storage(storage), key_set_, dtype_));
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(sizes(), strides(), storage_offset_);
  if (wrapped_number_) {
    impl->set_wrapped_number(true);
  }
  return tensor;
}

TensorMeta meta_of_storage(const at::Tensor& tensor, size_t nbytes) {
  const TensorMeta meta = TensorMeta(*tensor.unsafeGetTensorImpl()).as_stored();
  return meta.covers(nbytes) ? meta : meta.flattened(nbytes);
}

}  // namespace ac2::internal

#include "ac2/internal/libtorch/storage_copy.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cstring>

#include "ac2/internal/libtorch/torch_compat.h"

namespace ac2::internal {

namespace {

class BelowEverything {
  at::AutoDispatchBelowADInplaceOrView below_autograd_;
  c10::impl::ExcludeDispatchKeyGuard unrecorded_{kRecordKey};
};

}  // namespace

at::Tensor as_bytes(const c10::Storage& storage, size_t nbytes) {
  const BelowEverything guard;
  at::Tensor bytes = at::empty({0}, at::TensorOptions().dtype(at::kByte).device(storage.device()));
  bytes.unsafeGetTensorImpl()->set_storage_keep_dtype(storage);
  bytes.unsafeGetTensorImpl()->set_sizes_contiguous({static_cast<int64_t>(nbytes)});
  return bytes;
}

c10::Storage allocate_storage(size_t nbytes, c10::Device device) {
  if (device.is_cpu()) {
    c10::Allocator* allocator = c10::GetCPUAllocator();
    return c10::Storage(c10::Storage::use_byte_size_t(), nbytes, allocator->allocate(nbytes), allocator,
                        /*resizable=*/true);
  }
  const BelowEverything guard;
  return at::empty({static_cast<int64_t>(nbytes)}, at::TensorOptions().dtype(at::kByte).device(device)).storage();
}

c10::Storage copy_storage(const c10::Storage& source, size_t nbytes) {
  const c10::Device device = source.device();
  c10::Storage copy = allocate_storage(nbytes, device);
  if (device.is_cpu()) {
    if (nbytes > 0) {
      std::memcpy(copy.mutable_data(), source.data(), nbytes);
    }
    return copy;
  }
  copy_bytes(source, copy, nbytes);
  return copy;
}

void copy_bytes(const c10::Storage& from, const c10::Storage& to, size_t nbytes) {
  const BelowEverything guard;
  as_bytes(to, nbytes).copy_(as_bytes(from, nbytes), /*non_blocking=*/true);
}

}  // namespace ac2::internal

#include "ac2/internal/record/handed_out.h"

#include "ac2/internal/libtorch/storage_copy.h"
#include "ac2/internal/libtorch/tensor_meta.h"
#include "ac2/internal/record/declared_kernel.h"
#include "ac2/internal/record/exposing.h"
#include "ac2/internal/record/watched_write.h"

namespace ac2::internal {

namespace {

// Whether `tensor` was exposed, so that there may be something to copy.
bool expose(const at::Tensor& tensor) {
  if (DeclaredKernel::here() || !tensor.defined() || !has_plain_storage(tensor) || !WatchedWrite::are_needed()) {
    return false;
  }
  expose_storage(tensor);
  return true;
}

}  // namespace

void before_pointer(const at::Tensor& tensor) {
  expose(tensor);
}

void before_capsule(const at::Tensor& tensor) {
  if (expose(tensor)) {
    tell_closed_tapes_of_write(tensor);
  }
}

void before_unseen_write(const at::Tensor& tensor) {
  if (expose(tensor)) {
    tell_tapes_of_write(tensor, IsCounted::kNo);
  }
}

void before_unseen_write_to(const c10::Storage& storage) {
  before_unseen_write(as_bytes(storage, storage.nbytes()));
}

}  // namespace ac2::internal

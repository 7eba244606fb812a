#include "ac2/internal/record/numpy_view.h"

#include "ac2/internal/libtorch/tensor_meta.h"
#include "ac2/internal/record/exposing.h"
#include "ac2/internal/record/watched_write.h"

namespace ac2::internal {

void before_numpy_view(const at::Tensor& tensor) {
  if (tensor.defined() && has_plain_storage(tensor) && WatchedWrite::are_needed()) {
    expose_storage(tensor);
    tell_tapes_of_write(tensor);
  }
}

}  // namespace ac2::internal

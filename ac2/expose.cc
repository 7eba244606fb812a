#include "ac2/expose.h"

#include <atomic>

#include "ac2/internal/graph/live_nodes.h"
#include "ac2/internal/libtorch/tensor_meta.h"
#include "ac2/internal/record/exposing.h"

namespace ac2 {

void expose(const at::Tensor& tensor) {
  const bool any_region = internal::live_nodes().load(std::memory_order_relaxed) > 0;
  if (any_region && internal::has_plain_storage(tensor)) {
    internal::expose_storage(tensor);
  }
}

}  // namespace ac2

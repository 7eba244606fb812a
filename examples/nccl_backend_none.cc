#include <c10/util/Exception.h>

#include "examples/nccl_backend.h"

namespace gpt {

c10::intrusive_ptr<c10d::Backend> nccl_backend(const c10::intrusive_ptr<c10d::Store>&, int, int) {
  TORCH_CHECK(false, "This program was built without CUDA and has no NCCL. Build it with --config=cuda.");
}

}  // namespace gpt

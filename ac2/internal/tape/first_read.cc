#include "ac2/internal/tape/first_read.h"

#include <c10/util/Exception.h>

#include "ac2/internal/graph/node.h"
#include "ac2/internal/libtorch/spelling.h"

namespace ac2::internal {

bool is_changed_at_first_read(Value& value, const at::Tensor& tensor) {
  const uint32_t made = value.sample();
  value.set_sample(0);
  c10::StorageImpl& storage = *tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
  return &storage == value.original_address() && value.producer() != nullptr && sample_of(storage) != made;
}

std::string text_of_unseen_kernel(const Node& producer, int64_t bytes) {
  return c10::str("After ", describe(producer), " had made ", bytes,
                  " bytes, something that no dispatcher sees has written to them, such as a kernel that was given "
                  "data_ptr(). The region holds these bytes until backward, because it cannot compute them again. It "
                  "finds such a write by a few of the bytes, and before the first op that reads them. Call ",
                  spelled("ac2::expose(tensor)", "ac2.expose(tensor)"),
                  " before the kernel writes, so that every write counts, or make the kernel an op (",
                  spelled("ac2::replayable", "ac2.replayable"), ", TORCH_LIBRARY), so that it is computed again.");
}

}  // namespace ac2::internal

#include "ac2/internal/record/early_counts.h"

#include "ac2/internal/graph/seen_writes.h"
#include "ac2/internal/record/watched_write.h"
#include "ac2/internal/region/region.h"

namespace ac2::internal {

void note_early_count(const at::Tensor& tensor) {
  if (!tensor.defined() || !WatchedWrite::are_needed()) {
    return;
  }
  if (ThreadRegions::here().innermost() != nullptr) {
    seen_writes().note_early(tensor);
  } else {
    WatchedWrite("torch.library.custom_op", tensor).ran();
  }
}

}  // namespace ac2::internal

#include "ac2/internal/record/early_counts.h"

#include "ac2/internal/graph/seen_writes.h"
#include "ac2/internal/region/region.h"

namespace ac2::internal {

void note_early_count(const at::Tensor& tensor) {
  if (ThreadRegions::here().innermost() != nullptr) {
    seen_writes().note(SeenWrites::Write(tensor, nullptr, "set_data()"));
  }
}

}  // namespace ac2::internal

#include "ac2/internal/region/region_keys.h"

#include "ac2/internal/libtorch/torch_compat.h"
#include "ac2/internal/region/region.h"

namespace ac2::internal {

c10::DispatchKeySet keys_of_regions() {
  if (ThreadRegions::here().found_key_included() || is_in_fake_mode()) {
    return {};
  }
  return c10::DispatchKeySet(kRecordKey);
}

}  // namespace ac2::internal

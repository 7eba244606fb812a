#include "ac2/internal/region/policies_here.h"

#include "ac2/internal/region/region.h"

namespace ac2::internal {

bool policies_here_save_everything() {
  const PolicyStack* policies = ThreadRegions::here().policies();
  return policies == nullptr || policies->saves_everything();
}

bool is_region_open_here() {
  return ThreadRegions::here().policies() != nullptr;
}

}  // namespace ac2::internal

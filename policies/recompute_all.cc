#include "policies/all_or_nothing.h"

namespace ac2::policies {

Policy recompute_all() {
  return Policy::constant(CheckpointPolicy::PREFER_RECOMPUTE).named("recompute_all");
}

}  // namespace ac2::policies

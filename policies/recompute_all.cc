#include "policies/recompute_all.h"

namespace ac2::policies {

Policy recompute_all() {
  return Policy::constant(CheckpointPolicy::PREFER_RECOMPUTE).named("recompute_all");
}

}  // namespace ac2::policies

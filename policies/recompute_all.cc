#include "policies/recompute_all.h"

namespace ac2::policies {

Policy recompute_all() {
  return Policy::constant(CheckpointPolicy::PREFER_RECOMPUTE);
}

}  // namespace ac2::policies

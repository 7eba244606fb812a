#include "policies/saveable.h"

namespace ac2::policies {

Policy everything_saveable() {
  return CheckpointPolicy::MUST_SAVE;
}

Policy nothing_saveable() {
  return CheckpointPolicy::PREFER_RECOMPUTE;
}

}  // namespace ac2::policies

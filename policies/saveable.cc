#include "policies/jax_names.h"

namespace ac2::policies {

Policy everything_saveable() {
  return Policy(CheckpointPolicy::MUST_SAVE).named("everything_saveable");
}

Policy nothing_saveable() {
  return Policy(CheckpointPolicy::PREFER_RECOMPUTE).named("nothing_saveable");
}

}  // namespace ac2::policies

#include "policies/all_or_nothing.h"

namespace ac2::policies {

Policy must_save_all() {
  return Policy::constant(CheckpointPolicy::MUST_SAVE).named("must_save_all");
}

}  // namespace ac2::policies

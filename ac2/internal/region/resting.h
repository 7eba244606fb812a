// Regions that rest where no gradient can be recorded: for regions around whole programs, which evaluate, generate and
// prepare data too.
//
//   let_region_rest();                                  // the innermost region of this thread
//   if (is_resting()) { …run the op, record nothing… }  // in the kernels behind the record key
//
// An op that runs while grad mode is off is then none of the region's, as within DisableCheckpointing. What it computes
// is from outside for later ops, which hold it where they need it. What it writes to is seen to as every write that is
// not recorded (record/unrecorded_write.h). Regions that the program opens itself do not rest: what it computes without
// a gradient there, as a mask, is computed again in backward.
//
// Threads: concerns the calling thread.
#pragma once

#include <c10/core/GradMode.h>

#include "ac2/internal/region/region.h"

namespace ac2::internal {

// Does nothing where no region is open.
inline void let_region_rest() {
  if (Region* region = ThreadRegions::here().innermost()) {
    region->rests_without_grad = true;
  }
}

inline bool is_resting() {
  if (c10::GradMode::is_enabled()) {
    return false;
  }
  const Region* region = ThreadRegions::here().innermost();
  return region != nullptr && region->rests_without_grad;
}

}  // namespace ac2::internal

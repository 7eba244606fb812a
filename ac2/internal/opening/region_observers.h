// The observers that a scope may ask for, as a region starts them.
//
// Threads: each belongs to one region.
#pragma once

#include <memory>

#include "ac2/internal/observe/step_log.h"
#include "ac2/internal/region/region_observer.h"

namespace ac2::internal {

// ScopeOptions::verify.
std::shared_ptr<RegionObserver> verifying();
// ScopeOptions::timeline.
std::shared_ptr<RegionObserver> keeping_a_timeline();
// A planner's log of the step that the region is.
std::shared_ptr<RegionObserver> logging_to(std::shared_ptr<StepLog> log);

}  // namespace ac2::internal

// Somebody who observes a region, for as long as the region's tape lives: the timeline, the verifier, a planner's step
// log. A scope asks for them (RegionOptions::observers); the region knows no more of them than this.
//
// Threads: start() and scopes_changed() are called by the region's thread.
#pragma once

#include <string_view>

#include "ac2/internal/region/policy_stack.h"
#include "ac2/internal/tape/tape.h"

namespace ac2::internal {

class RegionObserver {
 public:
  virtual ~RegionObserver() = default;

  // A region starts one of a kind, the first that a scope asks for.
  virtual std::string_view kind() const = 0;
  // From now on `tape` is observed.
  virtual void start(Tape& tape) = 0;
  // With the tape's lock: the region has these policies now.
  virtual void scopes_changed(const PolicyStack& /*policies*/) {}
};

}  // namespace ac2::internal

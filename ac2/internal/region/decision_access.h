// The way from the public PolicyDecision to what rooms below the program know about it.
#pragma once

#include <memory>
#include <utility>

#include "ac2/policy.h"

namespace ac2::internal {

class DecisionAccess {
 public:
  // A decision whose functions let go of nothing that the program has, such as those of policies in //policies. The
  // constructor of PolicyDecision makes no such promise.
  static PolicyDecision of_harmless(SaveWithHooks hooks) {
    return PolicyDecision(std::make_shared<const SaveWithHooks>(std::move(hooks)));
  }
  // Whether any decision of this process has functions that may let go of what the program has.
  static bool any_may_drop_tensors() { return PolicyDecision::any_may_drop_tensors(); }
};

}  // namespace ac2::internal

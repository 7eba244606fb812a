// A policy whose author promises that its functions drop no tensor of the program's.
//
//   return harmless(Policy::by_operator(…));   // ops under it need not hold their arguments
#pragma once

#include <utility>

#include "ac2/policy_instance.h"

namespace ac2::internal {

// The same policy, with the same name.
inline Policy harmless(Policy policy) {
  std::string name = policy.name();
  return policy_per_region([policy = std::move(policy)] {
           PolicyInstance instance = enter_policy(policy);
           instance.may_drop_tensors = false;
           return instance;
         })
      .named(std::move(name));
}

}  // namespace ac2::internal

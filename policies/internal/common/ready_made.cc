#include "policies/internal/common/ready_made.h"

#include <utility>

#include "ac2/internal/region/harmless_policy.h"

namespace ac2::policies::internal {

Policy ready_made(std::string name, Policy policy) {
  return ac2::internal::harmless(std::move(policy)).named(std::move(name));
}

}  // namespace ac2::policies::internal

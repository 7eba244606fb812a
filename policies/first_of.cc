#include "policies/composed_policies.h"

#include <c10/util/Exception.h>

#include <optional>
#include <utility>

#include "policies/internal/common/compose.h"

namespace ac2::policies {

namespace {

std::optional<PolicyDecision> first_must_or_last(c10::ArrayRef<std::optional<PolicyDecision>> decisions) {
  std::optional<PolicyDecision> chosen = internal::first_must(decisions);
  for (size_t i = decisions.size(); i-- > 0 && !chosen;) {
    chosen = decisions[i];
  }
  return chosen;
}

}  // namespace

Policy first_of(std::vector<Policy> policies) {
  TORCH_CHECK(!policies.empty(), "first_of was given no policy. Give it at least one; the last is the general rule.");
  return internal::compose(std::move(policies), first_must_or_last).named("first_of");
}

}  // namespace ac2::policies

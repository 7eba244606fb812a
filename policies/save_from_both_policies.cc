#include "policies/composed_policies.h"

#include <optional>
#include <utility>

#include "policies/internal/common/compose.h"

namespace ac2::policies {

namespace {

std::optional<PolicyDecision> save_if_either(c10::ArrayRef<std::optional<PolicyDecision>> decisions) {
  const std::optional<PolicyDecision>& first = decisions[0];
  const std::optional<PolicyDecision>& second = decisions[1];
  const bool first_saves = first && first->saves();
  const bool second_saves = second && second->saves();
  if (first_saves != second_saves) {
    return first_saves ? first : second;
  }
  if (!first || !second) {
    return std::nullopt;
  }
  const std::optional<PolicyDecision> must = internal::first_must(decisions);
  return must ? must : first;
}

}  // namespace

Policy save_from_both_policies(Policy first, Policy second) {
  return internal::compose({std::move(first), std::move(second)}, save_if_either).named("save_from_both_policies");
}

}  // namespace ac2::policies

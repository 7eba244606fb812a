#include "policies/internal/common/named_values.h"

#include <c10/util/Exception.h>

#include <optional>
#include <utility>

#include "policies/internal/common/ready_made.h"
#include "policies/internal/common/wanted.h"

namespace ac2::policies::internal {

std::shared_ptr<const ValueNames> value_names(const char* caller, const std::vector<std::string>& names) {
  auto parsed = std::make_shared<ValueNames>();
  for (const std::string& name : names) {
    TORCH_CHECK(!name.empty(), caller, " was given an empty name. List the names that name_tensor gives.");
    parsed->insert(name);
  }
  return parsed;
}

bool has_one_of(const NamedTensor& tensor, const ValueNames& names) {
  return names.contains(std::string(tensor.name));
}

Policy decide_listed(const char* caller, const std::vector<std::string>& names, CheckpointPolicy listed,
                     CheckpointPolicy unnamed) {
  const Policy policy =
      Policy::constant(unnamed).with_names([names = value_names(caller, names), listed](const NamedTensor& tensor) {
        return has_one_of(tensor, *names) ? std::optional<PolicyDecision>(listed) : std::nullopt;
      });
  return ready_made(caller, watch_names(policy, caller, names));
}

}  // namespace ac2::policies::internal

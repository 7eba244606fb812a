#include "policies/these_names.h"

#include <c10/util/Exception.h>

#include <memory>
#include <optional>

#include "absl/container/flat_hash_set.h"
#include "policies/internal/common/ready_made.h"
#include "policies/internal/common/wanted.h"

namespace ac2::policies {

namespace {

using enum CheckpointPolicy;
using Names = absl::flat_hash_set<std::string>;

std::shared_ptr<const Names> parse(const char* caller, const std::vector<std::string>& names) {
  auto parsed = std::make_shared<Names>();
  for (const std::string& name : names) {
    TORCH_CHECK(!name.empty(), caller, " was given an empty name. List the names that name_tensor gives.");
    parsed->insert(name);
  }
  return parsed;
}

bool has(const Names& names, const NamedTensor& tensor) {
  return names.contains(std::string(tensor.name));
}

// `unnamed` for every op, `listed` for values with one of the names.
Policy decide_listed(const char* caller, const std::vector<std::string>& names, CheckpointPolicy listed,
                     CheckpointPolicy unnamed) {
  const Policy policy =
      Policy::constant(unnamed).with_names([names = parse(caller, names), listed](const NamedTensor& tensor) {
        return has(*names, tensor) ? std::optional<PolicyDecision>(listed) : std::nullopt;
      });
  return internal::ready_made(caller, internal::watch_names(policy, caller, names));
}

}  // namespace

Policy save_only_these_names(const std::vector<std::string>& names) {
  return decide_listed("save_only_these_names", names, MUST_SAVE, PREFER_RECOMPUTE);
}

Policy save_any_names_but_these(const std::vector<std::string>& names) {
  const char* const caller = "save_any_names_but_these";
  const Policy policy =
      Policy::constant(PREFER_RECOMPUTE).with_names([names = parse(caller, names)](const NamedTensor& tensor) {
        return has(*names, tensor) ? std::nullopt : std::optional<PolicyDecision>(MUST_SAVE);
      });
  return internal::ready_made(caller, internal::watch_names(policy, caller, names));
}

Policy save_anything_except_these_names(const std::vector<std::string>& names) {
  return decide_listed("save_anything_except_these_names", names, PREFER_RECOMPUTE, PREFER_SAVE);
}

Policy recompute_these_names(const std::vector<std::string>& names) {
  return decide_listed("recompute_these_names", names, MUST_RECOMPUTE, PREFER_SAVE);
}

Policy offload_these_names(const std::vector<std::string>& names) {
  return decide_listed("offload_these_names", names, MUST_CPU_OFFLOAD, PREFER_RECOMPUTE);
}

Policy save_and_offload_only_these_names(const std::vector<std::string>& saved,
                                         const std::vector<std::string>& offloaded) {
  const char* const caller = "save_and_offload_only_these_names";
  const std::shared_ptr<const Names> both = parse(caller, saved);
  for (const std::string& name : offloaded) {
    TORCH_CHECK(!both->contains(name), caller, ": \"", name, "\" is in both lists. Either save it or offload it.");
  }
  const Policy saves = decide_listed(caller, saved, MUST_SAVE, PREFER_RECOMPUTE);
  const Policy policy = saves.with_names([names = parse(caller, offloaded)](const NamedTensor& tensor) {
    return has(*names, tensor) ? std::optional<PolicyDecision>(MUST_CPU_OFFLOAD) : std::nullopt;
  });
  return internal::ready_made(caller, internal::watch_names(policy, caller, offloaded));
}

}  // namespace ac2::policies

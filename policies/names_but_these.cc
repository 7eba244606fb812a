#include <c10/util/Exception.h>

#include <memory>
#include <optional>

#include "policies/internal/common/named_values.h"
#include "policies/internal/common/ready_made.h"
#include "policies/internal/common/wanted.h"
#include "policies/jax_names.h"

namespace ac2::policies {

Policy save_any_names_but_these(const std::vector<std::string>& names) {
  const char* const caller = "save_any_names_but_these";
  const Policy policy = Policy::constant(CheckpointPolicy::PREFER_RECOMPUTE)
                            .with_names([names = internal::value_names(caller, names)](const NamedTensor& tensor) {
                              return internal::has_one_of(tensor, *names)
                                         ? std::nullopt
                                         : std::optional<PolicyDecision>(CheckpointPolicy::MUST_SAVE);
                            });
  return internal::ready_made(caller, internal::watch_names(policy, caller, names));
}

Policy save_anything_except_these_names(const std::vector<std::string>& names) {
  return internal::decide_listed("save_anything_except_these_names", names, CheckpointPolicy::PREFER_RECOMPUTE,
                                 CheckpointPolicy::PREFER_SAVE);
}

Policy save_and_offload_only_these_names(const std::vector<std::string>& saved,
                                         const std::vector<std::string>& offloaded) {
  const char* const caller = "save_and_offload_only_these_names";
  const std::shared_ptr<const internal::ValueNames> both = internal::value_names(caller, saved);
  for (const std::string& name : offloaded) {
    TORCH_CHECK(!both->contains(name), caller, ": \"", name, "\" is in both lists. Either save it or offload it.");
  }
  const Policy saves =
      internal::decide_listed(caller, saved, CheckpointPolicy::MUST_SAVE, CheckpointPolicy::PREFER_RECOMPUTE);
  const Policy policy = saves.with_names([names = internal::value_names(caller, offloaded)](const NamedTensor& tensor) {
    return internal::has_one_of(tensor, *names) ? std::optional<PolicyDecision>(CheckpointPolicy::MUST_CPU_OFFLOAD)
                                                : std::nullopt;
  });
  return internal::ready_made(caller, internal::watch_names(policy, caller, offloaded));
}

}  // namespace ac2::policies

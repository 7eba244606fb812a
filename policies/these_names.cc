#include "policies/these_names.h"

#include "policies/internal/common/named_values.h"

namespace ac2::policies {

using enum CheckpointPolicy;

Policy save_only_these_names(const std::vector<std::string>& names) {
  return internal::decide_listed("save_only_these_names", names, MUST_SAVE, PREFER_RECOMPUTE);
}

Policy recompute_these_names(const std::vector<std::string>& names) {
  return internal::decide_listed("recompute_these_names", names, MUST_RECOMPUTE, PREFER_SAVE);
}

Policy offload_these_names(const std::vector<std::string>& names) {
  return internal::decide_listed("offload_these_names", names, MUST_CPU_OFFLOAD, PREFER_RECOMPUTE);
}

}  // namespace ac2::policies

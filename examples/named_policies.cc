#include "examples/named_policies.h"

#include <c10/util/Exception.h>

#include "policies/policies.h"

namespace gpt {

const std::vector<std::string>& policy_names() {
  static const std::vector<std::string> names = {"none", "recompute_all", "save_compute_intensive", "must_save_all"};
  return names;
}

std::optional<ac2::Policy> policy_by_name(const std::string& name) {
  if (name == "none") return std::nullopt;
  if (name == "recompute_all") return ac2::policies::recompute_all();
  if (name == "save_compute_intensive") return ac2::policies::save_compute_intensive();
  if (name == "must_save_all") return ac2::policies::must_save_all();
  std::string choices;
  for (const std::string& known : policy_names()) choices += (choices.empty() ? "" : ", ") + known;
  TORCH_CHECK(false, "Unknown policy \"", name, "\". Choose one of: ", choices, ".");
}

}  // namespace gpt

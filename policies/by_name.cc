#include "policies/by_name.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_join.h"
#include "policies/all_or_nothing.h"
#include "policies/strategies.h"

namespace ac2::policies {

namespace {

using Entry = std::pair<std::string, Policy (*)()>;

// The general ones first, then those under JAX's names.
const std::vector<Entry>& table() {
  static const auto& policies = *new std::vector<Entry>{
      {"recompute_all", recompute_all},
      {"save_compute_intensive", save_compute_intensive},
      {"must_save_all", must_save_all},
      {"speed", speed},
      {"memory", memory},
      {"everything_saveable", everything_saveable},
      {"nothing_saveable", nothing_saveable},
      {"dots_saveable", dots_saveable},
      {"checkpoint_dots", checkpoint_dots},
      {"dots_with_no_batch_dims_saveable", dots_with_no_batch_dims_saveable},
      {"checkpoint_dots_with_no_batch_dims", checkpoint_dots_with_no_batch_dims},
      {"offload_dot_with_no_batch_dims", offload_dot_with_no_batch_dims},
  };
  return policies;
}

}  // namespace

const std::vector<std::string>& policy_names() {
  static const auto& names = *[] {
    auto* all = new std::vector<std::string>;
    for (const auto& [name, _] : table()) {
      all->push_back(name);
    }
    return all;
  }();
  return names;
}

Policy policy_by_name(const std::string& name) {
  const auto found =
      std::find_if(table().begin(), table().end(), [&](const Entry& entry) { return entry.first == name; });
  TORCH_CHECK(found != table().end(), "Unknown policy \"", name,
              "\". Choose one of: ", absl::StrJoin(policy_names(), ", "), ".");
  return found->second();
}

}  // namespace ac2::policies

#include "policies/by_name.h"

#include <c10/util/StringUtil.h>

#include <cinttypes>
#include <cstdio>

#include "ac2/form.h"
#include "ac2/internal/policy_names/policy_names.h"
#include "ac2/policy.h"
#include "policies/all_or_nothing.h"
#include "policies/internal/common/idle_hooks.h"
#include "policies/jax_names.h"
#include "policies/strategies.h"

namespace ac2::internal {

// The general ones first, then those under JAX's names.
const std::vector<NamedPolicy>& ready_made_policies() {
  static const auto& table = *new std::vector<NamedPolicy>{
      {"recompute_all", policies::recompute_all},
      {"save_compute_intensive", policies::save_compute_intensive},
      {"must_save_all", policies::must_save_all},
      {"speed", policies::speed},
      {"memory", policies::memory},
      {"everything_saveable", policies::everything_saveable},
      {"nothing_saveable", policies::nothing_saveable},
      {"dots_saveable", policies::dots_saveable},
      {"checkpoint_dots", policies::checkpoint_dots},
      {"dots_with_no_batch_dims_saveable", policies::dots_with_no_batch_dims_saveable},
      {"checkpoint_dots_with_no_batch_dims", policies::checkpoint_dots_with_no_batch_dims},
      {"offload_dot_with_no_batch_dims", policies::offload_dot_with_no_batch_dims},
  };
  return table;
}

FormPtr form_named(const std::string& name) {
  FormPtr form;
  int64_t bits = 0;
  uint64_t seed = 0;
  if (name == "one bit") {
    form = forms::one_bit();
  } else if (name.starts_with("file ")) {
    form = forms::file(name.substr(5));
  } else if (std::sscanf(name.c_str(), "quantized %" SCNd64 " bits, seed %" SCNu64, &bits, &seed) == 2 &&
             (bits == 8 || bits == 4)) {
    form = forms::quantized(static_cast<int>(bits), seed);
  } else {
    for (const at::ScalarType type : {at::kBFloat16, at::kHalf, at::kFloat8_e4m3fn, at::kFloat8_e5m2}) {
      if (name == c10::str("narrow ", type)) {
        form = forms::narrow(type);
      }
    }
  }
  // A name may have more to it than was read.
  return form != nullptr && form->name() == name ? form : nullptr;
}

Policy watched_hooks(const Policy& policy, const std::string& caller) {
  return policies::internal::watch_hooks(policy, caller);
}

}  // namespace ac2::internal

namespace ac2::policies {

const std::vector<std::string>& policy_names() {
  static const auto& names = *[] {
    auto* all = new std::vector<std::string>;
    for (const ac2::internal::NamedPolicy& policy : ac2::internal::ready_made_policies()) {
      all->emplace_back(policy.name);
    }
    return all;
  }();
  return names;
}

Policy policy_by_name(const std::string& name) {
  return Policy(name);
}

}  // namespace ac2::policies

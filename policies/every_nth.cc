#include "policies/strategies.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/Exception.h>

#include <memory>

#include "policies/internal/common/op_names.h"
#include "policies/internal/common/ready_made.h"
#include "policies/internal/common/wanted.h"

namespace ac2::policies {

namespace {

// Null stands for all ops.
Policy count(int64_t n, const std::shared_ptr<const internal::OpNameSet>& ops) {
  TORCH_CHECK(n >= 1, "every_nth was given ", n, "; expected 1 (saves everything) or more.");
  return Policy::factory([n, ops]() -> PolicyFn {
    return [n, ops, count = int64_t{0}](const OpContext& op) mutable {
      if (ops != nullptr && !ops->contains(op.op().operator_name())) {
        return CheckpointPolicy::PREFER_RECOMPUTE;
      }
      count = (count + 1) % n;
      return count == 0 ? CheckpointPolicy::MUST_SAVE : CheckpointPolicy::PREFER_RECOMPUTE;
    };
  });
}

}  // namespace

Policy every_nth(int64_t n) {
  return internal::ready_made("every_nth", count(n, nullptr));
}

Policy every_nth(int64_t n, const std::vector<std::string>& ops) {
  TORCH_CHECK(!ops.empty(), "every_nth was given an empty list of ops. Leave it out to count all ops.");
  const auto set = std::make_shared<const internal::OpNameSet>(internal::OpNameSet::parse("every_nth", ops));
  return internal::ready_made("every_nth",
                              internal::watch_ops(count(n, set), "every_nth", ops, internal::Complain::kIfNoneCame));
}

}  // namespace ac2::policies

#include "policies/listed_ops.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include "policies/internal/common/op_names.h"
#include "policies/internal/common/ready_made.h"
#include "policies/internal/common/wanted.h"

namespace ac2::policies {

Policy recompute_ops(const std::vector<std::string>& ops) {
  return internal::ready_made(
      "recompute_ops",
      internal::watch_ops(Policy::by_operator([recomputed = internal::OpNameSet::parse("recompute_ops", ops)](
                                                  const c10::OperatorHandle& op) {
                            return recomputed.contains(op.operator_name()) ? CheckpointPolicy::MUST_RECOMPUTE
                                                                           : CheckpointPolicy::PREFER_SAVE;
                          }),
                          "recompute_ops", ops, internal::Complain::kIfNoneCame));
}

}  // namespace ac2::policies

#include "policies/listed_ops.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include "policies/internal/common/op_names.h"
#include "policies/internal/common/ready_made.h"
#include "policies/internal/common/wanted.h"

namespace ac2::policies {

Policy offload_ops(const std::vector<std::string>& ops) {
  return internal::ready_made(
      "offload_ops", internal::watch_ops(Policy::by_operator([offloaded = internal::OpNameSet::parse(
                                                                  "offload_ops", ops)](const c10::OperatorHandle& op) {
                                           return offloaded.contains(op.operator_name())
                                                      ? CheckpointPolicy::MUST_CPU_OFFLOAD
                                                      : CheckpointPolicy::PREFER_RECOMPUTE;
                                         }),
                                         "offload_ops", ops, internal::Complain::kIfNoneCame));
}

}  // namespace ac2::policies

#include "policies/listed_ops.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include "policies/internal/common/op_names.h"

namespace ac2::policies {

Policy offload_ops(const std::vector<std::string>& ops) {
  return Policy::by_operator(
             [offloaded = internal::OpNameSet::parse("offload_ops", ops)](const c10::OperatorHandle& op) {
               return offloaded.contains(op.operator_name()) ? CheckpointPolicy::MUST_CPU_OFFLOAD
                                                             : CheckpointPolicy::PREFER_RECOMPUTE;
             })
      .named("offload_ops");
}

}  // namespace ac2::policies

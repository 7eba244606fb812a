#include "policies/listed_ops.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include "policies/internal/common/op_names.h"
#include "policies/internal/common/ready_made.h"
#include "policies/internal/common/wanted.h"

namespace ac2::policies {

Policy save_ops(const std::vector<std::string>& ops) {
  return internal::ready_made(
      "save_ops",
      internal::watch_ops(
          Policy::by_operator([saved = internal::OpNameSet::parse("save_ops", ops)](const c10::OperatorHandle& op) {
            return saved.contains(op.operator_name()) ? CheckpointPolicy::MUST_SAVE
                                                      : CheckpointPolicy::PREFER_RECOMPUTE;
          }),
          "save_ops", ops, internal::Complain::kIfNoneCame));
}

}  // namespace ac2::policies

#include "policies/listed_ops.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/Exception.h>

#include "policies/internal/common/op_names.h"
#include "policies/internal/common/ready_made.h"

namespace ac2::policies {

Policy save_ops(const std::vector<std::string>& ops) {
  TORCH_CHECK(!ops.empty(),
              "save_ops was given no op. Name at least one, such as \"aten::mm\"; recompute_all saves none.");
  return internal::ready_made(
      "save_ops",
      Policy::by_operator([saved = internal::OpNameSet::parse("save_ops", ops)](const c10::OperatorHandle& op) {
        return saved.contains(op.operator_name()) ? CheckpointPolicy::MUST_SAVE : CheckpointPolicy::PREFER_RECOMPUTE;
      }));
}

}  // namespace ac2::policies

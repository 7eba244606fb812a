#include "policies/jax_names.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <string>
#include <vector>

#include "policies/internal/common/op_lists.h"
#include "policies/internal/common/op_names.h"
#include "policies/internal/common/ready_made.h"

namespace ac2::policies {

namespace {

// `decision` for those, PREFER_RECOMPUTE for the others.
Policy decide_those_in(const char* name, const internal::OpNameSet& ops, CheckpointPolicy decision) {
  return internal::ready_made(name, Policy::by_operator([&ops, decision](const c10::OperatorHandle& op) {
                                return ops.contains(op.operator_name()) ? decision : CheckpointPolicy::PREFER_RECOMPUTE;
                              }));
}

// The sets are leaked (a policy may be asked while the process exits) and unchecked (other LibTorch versions lack
// names).

const internal::OpNameSet& without_batch() {
  static const auto& ops =
      *new internal::OpNameSet(internal::OpNameSet::parse_unchecked(internal::products_without_batch()));
  return ops;
}

}  // namespace

Policy dots_saveable() {
  static const auto& saved = *[] {
    std::vector<std::string> ops = internal::products_without_batch();
    for (const auto* list : {&internal::batched_products(), &internal::convolutions()}) {
      ops.insert(ops.end(), list->begin(), list->end());
    }
    return new internal::OpNameSet(internal::OpNameSet::parse_unchecked(ops));
  }();
  return decide_those_in("dots_saveable", saved, CheckpointPolicy::MUST_SAVE);
}

Policy dots_with_no_batch_dims_saveable() {
  return decide_those_in("dots_with_no_batch_dims_saveable", without_batch(), CheckpointPolicy::MUST_SAVE);
}

Policy offload_dot_with_no_batch_dims() {
  return decide_those_in("offload_dot_with_no_batch_dims", without_batch(), CheckpointPolicy::MUST_CPU_OFFLOAD);
}

Policy checkpoint_dots() {
  return dots_saveable().named("checkpoint_dots");
}

Policy checkpoint_dots_with_no_batch_dims() {
  return dots_with_no_batch_dims_saveable().named("checkpoint_dots_with_no_batch_dims");
}

}  // namespace ac2::policies

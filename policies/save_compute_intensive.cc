#include "policies/strategies.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include "policies/internal/common/op_lists.h"
#include "policies/internal/common/op_names.h"
#include "policies/internal/common/ready_made.h"

namespace ac2::policies {

// Fused recurrent layers (aten::_cudnn_rnn, aten::mkldnn_rnn_layer) are left out: among their results is a reserve with
// the activations of every time step, which is what recomputing is there to avoid.
const std::vector<std::string>& compute_intensive_ops() {
  // Leaked: a policy may be asked while the process exits.
  static const auto& ops = *[] {
    auto* all = new std::vector<std::string>;
    for (const auto* list :
         {&internal::products_without_batch(), &internal::batched_products(), &internal::convolutions(),
          &internal::attention(), &internal::backward_of_compute_intensive()}) {
      all->insert(all->end(), list->begin(), list->end());
    }
    return all;
  }();
  return ops;
}

Policy save_compute_intensive() {
  // Unchecked: other LibTorch versions lack some of these names, and miss nothing by it.
  static const auto& saved = *new internal::OpNameSet(internal::OpNameSet::parse_unchecked(compute_intensive_ops()));
  return internal::ready_made("save_compute_intensive", Policy::by_operator([](const c10::OperatorHandle& op) {
                                return saved.contains(op.operator_name()) ? CheckpointPolicy::MUST_SAVE
                                                                          : CheckpointPolicy::PREFER_RECOMPUTE;
                              }));
}

}  // namespace ac2::policies

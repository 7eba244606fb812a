// The one place that makes an OpContext.
#pragma once

#include "ac2/policy.h"

namespace ac2::internal {

class OpContextFactory {
 public:
  static OpContext make(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> inputs,
                        c10::ArrayRef<c10::IValue> outputs, int64_t index) {
    return OpContext(op, inputs, outputs, index);
  }
};

}  // namespace ac2::internal

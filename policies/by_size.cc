#include "policies/strategies.h"

#include <c10/util/Exception.h>

#include "ac2/internal/libtorch/tensor_bytes.h"
#include "policies/internal/common/ready_made.h"

namespace ac2::policies {

Policy by_size(int64_t min_bytes) {
  TORCH_CHECK(min_bytes >= 0, "by_size was given ", min_bytes,
              " bytes; expected 0 or more: the least size of a result that is worth recomputing.");
  return internal::ready_made("by_size", Policy([min_bytes](const OpContext& op) {
                                return ac2::internal::bytes_of(op.outputs()) < min_bytes
                                           ? CheckpointPolicy::MUST_SAVE
                                           : CheckpointPolicy::PREFER_RECOMPUTE;
                              }));
}

}  // namespace ac2::policies

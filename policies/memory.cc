#include "policies/strategies.h"

#include <memory>

#include "ac2/internal/libtorch/tensor_bytes.h"
#include "policies/internal/common/lineage.h"
#include "policies/internal/common/ready_made.h"

namespace ac2::policies {

Policy memory() {
  return internal::ready_made("memory", Policy::factory([]() -> PolicyFn {
                                return [lineage = std::make_shared<internal::Lineage>()](const OpContext& op) {
                                  const int64_t joined = lineage->add(op);
                                  if (joined == 0) {
                                    return CheckpointPolicy::PREFER_RECOMPUTE;
                                  }
                                  return ac2::internal::bytes_of(op.outputs()) <= joined
                                             ? CheckpointPolicy::MUST_SAVE
                                             : CheckpointPolicy::PREFER_RECOMPUTE;
                                };
                              }));
}

}  // namespace ac2::policies

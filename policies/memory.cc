#include "policies/strategies.h"

#include <memory>

#include "ac2/internal/libtorch/for_each_tensor.h"
#include "policies/internal/common/lineage.h"

namespace ac2::policies {

Policy memory() {
  return Policy::factory([]() -> PolicyFn {
           return [lineage = std::make_shared<internal::Lineage>()](const OpContext& op) {
             const int64_t joined = lineage->add(op);
             if (joined == 0) {
               return CheckpointPolicy::PREFER_RECOMPUTE;
             }
             int64_t results = 0;
             ac2::internal::for_each_tensor(op.outputs(), [&](const at::Tensor& tensor) {
               if (tensor.defined()) results += tensor.numel() * static_cast<int64_t>(tensor.element_size());
             });
             return results <= joined ? CheckpointPolicy::MUST_SAVE : CheckpointPolicy::PREFER_RECOMPUTE;
           };
         })
      .named("memory");
}

}  // namespace ac2::policies

#include "ac2/internal/libtorch/fingerprint.h"

#include <ATen/core/LegacyTypeDispatch.h>

#include "absl/hash/hash.h"
#include "absl/strings/string_view.h"
#include "ac2/internal/libtorch/unrecorded.h"

namespace ac2::internal {

uint64_t fingerprint(const at::Tensor& tensor) {
  if (tensor.is_meta()) {
    return 0;
  }
  const Unrecorded unrecorded;
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const at::Tensor dense = tensor.cpu().contiguous();
  const auto* bytes = static_cast<const char*>(dense.const_data_ptr());
  return absl::HashOf(absl::string_view(bytes, dense.nbytes()));
}

}  // namespace ac2::internal

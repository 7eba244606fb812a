#include "policies/narrow_ops.h"

#include "ac2/form.h"
#include "policies/internal/common/pack_ops.h"

namespace ac2::policies {

Policy narrow_ops(const std::vector<std::string>& ops, at::ScalarType format) {
  return internal::pack_ops("narrow_ops", ops, /*is_inexact=*/true,
                            [form = forms::narrow(format)] { return [form](const std::string&) { return form; }; });
}

}  // namespace ac2::policies

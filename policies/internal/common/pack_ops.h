// Forms for listed ops, which the policies that save in another form have in common.
//
//   return pack_ops("narrow_ops", ops, /*is_inexact=*/true, [form] {
//     return [form](const std::string& op) { return form; };
//   });
//
// Scopes of one such policy may be nested: within a region of a thread, an operator has one form, so that the
// decisions of two scopes are the same, and no conflict.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ac2/form.h"
#include "ac2/policy.h"

namespace ac2::policies::internal {

// The form for the results of an operator, such as "aten::add.Tensor", in one region. Asked once for each.
using MakeForm = std::function<FormPtr(const std::string& op)>;

// A form for the listed ops, PREFER_RECOMPUTE for the others; called `caller` in reports. Names as in
// policies/listed_ops.h. `enter_region` gives the state of a region, and may run on several threads at once.
// `is_inexact`: what is unpacked may be other numbers than what was packed (PolicyInstance::is_inexact).
Policy pack_ops(const std::string& caller, const std::vector<std::string>& ops, bool is_inexact,
                std::function<MakeForm()> enter_region);

}  // namespace ac2::policies::internal

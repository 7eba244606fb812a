// Results that an op leaves partly undefined on purpose: workspaces whose unused bytes are whatever stood in memory.
// Verify mode does not compare them.
#pragma once

#include <string_view>

namespace ac2::internal {

// `op` is "aten::name" without overload; `result` counts the tensors among its results.
bool is_undefined_result(std::string_view op, int result);

}  // namespace ac2::internal

// by_module for a model that Python knows.
//
// Threads: any.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ac2/internal/modules/module_stack.h"
#include "ac2/policy.h"

namespace ac2::policies::internal {

// Paths are those of the names that modules have in `model` (ModuleName::model). Throws c10::Error for a pattern that
// matches none of `known`, which are all of the model's modules.
Policy by_module_of(const std::vector<std::pair<std::string, PolicyDecision>>& rules, int64_t model,
                    const ac2::internal::KnownModules& known);

}  // namespace ac2::policies::internal

// The check of a list of forms that are given to a scope or to a plan.
#pragma once

#include <string>

#include "ac2/form.h"

namespace ac2::internal {

// Throws c10::Error for a form that is null, and for two of one name. `option`: how the program spells what it has
// given.
void check_forms(const Forms& forms, const std::string& option);

}  // namespace ac2::internal

// The end of a scope, as its destructor reports it.
#pragma once

#include <memory>

#include "ac2/internal/region/region.h"

namespace ac2::internal {

// Throws c10::Error (a warning while another exception is in flight) if the scope is closed out of order or on another
// thread than its own. The scope is closed all the same.
void close_scope(const std::shared_ptr<ScopeState>& scope);

}  // namespace ac2::internal

// Where ops come in: the kernel behind kRecordKey.
#pragma once

namespace ac2::internal {

// Idempotent; any thread. To be called whenever a region opens: see shared_key.h.
void install_interceptor();

}  // namespace ac2::internal

// Where ops come in: the kernel behind kRecordKey.
#pragma once

namespace ac2::internal {

// Idempotent; any thread. Throws c10::Error if someone else's kernel is behind the key already.
void install_interceptor();

}  // namespace ac2::internal

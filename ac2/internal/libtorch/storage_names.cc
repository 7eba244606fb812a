#include "ac2/internal/libtorch/storage_names.h"

namespace ac2::internal {

StorageNames storage_names() {
  const HostLanguage* host = host_language();
  return host != nullptr ? host->storage_names() : StorageNames();
}

}  // namespace ac2::internal

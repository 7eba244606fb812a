#include "ac2/internal/libtorch/storage_names.h"

#include <utility>

#include "ac2/internal/libtorch/model_names.h"

namespace ac2::internal {

StorageNames storage_names() {
  const HostLanguage* host = host_language();
  StorageNames names = host != nullptr ? host->storage_names() : StorageNames();
  for (auto& of_model : model_names()) {
    names.push_back(std::move(of_model));
  }
  return names;
}

}  // namespace ac2::internal

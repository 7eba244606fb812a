// The names of a program's parameters ("layers.3.mlp.weight"), by their storages.
//
//   for (const auto& [storage, name] : storage_names()) …
//
// Threads: any.
#pragma once

#include "ac2/internal/libtorch/host_language.h"

namespace ac2::internal {

// Those of all modules of a host language, which can find them, and of the models that a program in C++ has shown to
// ac2. No lock may be held.
StorageNames storage_names();

}  // namespace ac2::internal

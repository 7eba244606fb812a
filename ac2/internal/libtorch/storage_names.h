// The names of a program's parameters ("layers.3.mlp.weight"), by their storages.
//
//   for (const auto& [storage, name] : storage_names()) …
//
// Threads: any.
#pragma once

#include "ac2/internal/libtorch/host_language.h"

namespace ac2::internal {

// Empty in a program in C++: only a host language can find the modules of a program. No lock may be held.
StorageNames storage_names();

}  // namespace ac2::internal

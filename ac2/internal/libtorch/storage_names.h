// The names of a program's parameters ("layers.3.mlp.weight"), by their storages.
//
//   set_storage_namer(&names_of_all_modules);    // called by code that can find a program's modules: Python
//   for (const auto& [storage, name] : storage_names()) …
//
// Threads: any.
#pragma once

#include <c10/core/StorageImpl.h>

#include <string>
#include <utility>
#include <vector>

namespace ac2::internal {

using StorageNames = std::vector<std::pair<const c10::StorageImpl*, std::string>>;
using StorageNamer = StorageNames (*)();

// Called where an error is made, without a lock. The namer may take its time.
void set_storage_namer(StorageNamer namer);
// Empty if there is no namer.
StorageNames storage_names();

}  // namespace ac2::internal

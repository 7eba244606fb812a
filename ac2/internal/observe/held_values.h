// The values that the regions of the process hold at this moment, and the parts of the program that computed them.
//
//   for (const HeldValue& held : held_values(storage_names())) …
//
// The part of the program is told from parameters: a module's ops take its parameters, and ops that come between those
// of one module and the next ran "after" the first. The part is looked for when the text is made, and recorded nowhere.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>
#include <vector>

#include "ac2/internal/libtorch/storage_names.h"

namespace ac2::internal {

struct HeldValue {
  int64_t bytes = 0;
  c10::Device device = c10::kCPU;
  bool alone = false;  // nobody but a region refers to the bytes
  std::string name;    // given by name_tensor(); empty if there is none
  // "layers.3.mlp", "after layers.3.mlp", or "taken by layers.3.mlp" for what came from outside; empty if no parameter
  // tells.
  std::string where;
  std::string what;                           // "aten::mm [8, 128] float"
  const c10::StorageImpl* storage = nullptr;  // only to be compared; null of what is packed
  // Of a region whose budget drops what it can before an error about memory arrives: whatever_fits(), or for a peak.
  bool drops_in_time = false;
};

// Values of all live tapes, each once. An offloaded value counts on the host. Takes the lock of one tape after the
// other.
std::vector<HeldValue> held_values(const StorageNames& names);

}  // namespace ac2::internal

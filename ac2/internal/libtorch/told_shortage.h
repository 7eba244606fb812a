// The shortage of memory that the text of an error tells of. LibTorch's errors say in no other way what was asked for
// and where, so their texts are read, here and nowhere else.
//
//   "DefaultCPUAllocator: can't allocate memory: you tried to allocate 4096 bytes. Error code 12 (…)"
//   "ac2: can't allocate memory: 4096 bytes were asked for, and …"
//   "CUDA out of memory. Tried to allocate 20.50 GiB. GPU 0 has a total capacity of …"
//
// Threads: any.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <optional>
#include <string_view>

namespace ac2::internal {

struct ToldShortage {
  bool on_host = false;                        // the memory of the CPU's tensors, and not an accelerator's
  std::optional<c10::DeviceIndex> index = {};  // of the accelerator
  std::optional<int64_t> bytes = {};           // that were asked for
};

// None if the text tells of none. A text that tells of none by itself, as "std::bad_alloc", may be an error about
// memory by its type: see is_out_of_memory().
std::optional<ToldShortage> told_shortage(std::string_view error);
// Errors about the host's memory have no type of their own: their text alone tells them from others.
bool is_about_hosts_memory(std::string_view error);

}  // namespace ac2::internal

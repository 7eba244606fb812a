// Memory that goes back to its allocator as soon as its owner lets go of it, without any code of the program.
//
//   if (const std::optional<QuietBytes> bytes = bytes_freed_quietly(packed)) {
//     packed = {};   // bytes->count bytes are free now
//   }
//
// In the middle of an allocation no deleter of the program's and no destructor of its objects may run: they could
// allocate, or wait for a lock that the allocating thread holds.
//
// Threads: any. No other thread may copy the object meanwhile.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>
#include <c10/core/StorageImpl.h>

#include <cstdint>
#include <optional>

namespace ac2::internal {

// Whether the storage's memory goes back to the allocator that it came from, and nothing else happens, once nobody has
// the storage.
bool is_freed_quietly(c10::StorageImpl& storage);

struct QuietBytes {
  int64_t count = 0;
  c10::Device device = c10::kCPU;
};

// The bytes that are free once `packed` is let go of. Null if somebody else has a part of it, if a part is something
// else than numbers, tensors, and lists and tuples of these, if code of the program would run, or if the tensors are on
// several devices. `packed` nests as deep as a pack function made it.
std::optional<QuietBytes> bytes_freed_quietly(const c10::IValue& packed);

}  // namespace ac2::internal

// An allocation that has failed is tried again, as long as values can be dropped.
//
//   return allocate_again(device, bytes, [&] { return behind.allocate(bytes); });
//
// Threads: any.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Device.h>
#include <c10/util/FunctionRef.h>

#include <cstddef>

namespace ac2::internal {

// Drops values for an eighth of `bytes` before each try, because some of what is missing may be there. When there is
// nothing to drop, calls `last_resort`, if there is one, and tries for the last time. Throws the error of that try,
// which says what is held if memory has run out, and other errors at once.
c10::DataPtr allocate_again(c10::Device device, size_t bytes, c10::function_ref<c10::DataPtr()> allocate,
                            void (*last_resort)() = nullptr);

}  // namespace ac2::internal

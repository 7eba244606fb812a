// Tells errors that say that memory ran out from others.
#pragma once

#include <exception>

namespace ac2::internal {

// True for c10::OutOfMemoryError, std::bad_alloc, and what LibTorch's CPU allocator throws (c10::alloc_cpu(), whose
// error has no type of its own).
bool is_out_of_memory(const std::exception& error);

}  // namespace ac2::internal

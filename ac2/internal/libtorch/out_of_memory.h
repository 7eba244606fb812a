// Whether an error says that memory ran out.
#pragma once

#include <exception>

namespace ac2::internal {

// c10::OutOfMemoryError, std::bad_alloc, or what LibTorch's CPU allocator (c10/core/impl/alloc_cpu.cpp) throws.
bool is_out_of_memory(const std::exception& error);

}  // namespace ac2::internal

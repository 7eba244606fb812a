// Settings of the C library's malloc for when memory runs out. With another malloc they have no effect.
//
// Threads: any.
#pragma once

#include <cstddef>

namespace ac2::internal {

constexpr size_t kMappedFrom = size_t{128} << 10;

// From now on, for the whole process, a block of kMappedFrom or more is mapped by itself and given back when it is
// freed. glibc begins so, and maps ever fewer blocks as mapped ones are freed. Does nothing the second time.
void map_large_blocks();
// Gives the free blocks of malloc's heap back to the machine.
void return_free_memory();

}  // namespace ac2::internal

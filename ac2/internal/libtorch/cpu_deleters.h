// The deleters of memory of the CPU that goes back to LibTorch's allocator or to one that stands in front of it, and
// that do nothing else.
//
//   add_cpu_deleter(&free_block);             // by an allocator of ours
//   if (is_cpu_deleter(data.get_deleter())) …
//
// An allocator names one deleter of all its memory (c10::Allocator::raw_deleter). The allocator in front of LibTorch's
// names another one once it counts or keeps blocks, and the blocks from before have theirs still.
//
// Threads: any.
#pragma once

#include <c10/core/Allocator.h>

namespace ac2::internal {

// There are few. The same one again changes nothing.
void add_cpu_deleter(c10::DeleterFnPtr deleter);
// LibTorch's own is one from the beginning. Null is none.
bool is_cpu_deleter(c10::DeleterFnPtr deleter);

}  // namespace ac2::internal

// CUDA's caching allocator asks us before it fails.
//
//   ask_us_where_cuda_runs_out();     // as often as one likes; nothing where LibTorch has no CUDA
//
// The allocator has a registry of callbacks, which it runs whenever its cache has no block for an allocation, before it
// asks CUDA for more. The registry is found in libc10_cuda.so when the program runs, so that a library that was built
// without CUDA serves both. The allocator says neither how much it wants nor on which device. Our callback takes the
// current one. The callback answers that it has freed nothing if there is room for an allocation as large as is to be
// expected (accelerator_room.h). Else the callback frees the bytes that this room lacks.
//
// Threads: any. The callback runs with the allocator's recursive lock held. The callback frees tensors, waits for no
// lock for long and runs no Python.
#pragma once

#include <c10/util/Registry.h>

#include <memory>
#include <string>

// As in c10/cuda/CUDACachingAllocator.h, which needs headers of CUDA's.
namespace c10 {
class FreeMemoryCallback {
 public:
  virtual ~FreeMemoryCallback() = default;
  virtual bool Execute() = 0;
};
}  // namespace c10

namespace ac2::internal {

using FreeMemoryRegistry = c10::Registry<std::string, std::unique_ptr<c10::FreeMemoryCallback>>;

void ask_us_where_cuda_runs_out();
// In a registry. A name may be registered only once: false, and nothing is done, if it is there already.
bool register_free_memory_callback(FreeMemoryRegistry& registry);

}  // namespace ac2::internal

// Kernels of write_watch.h for the commonest ops that write to their first argument: they take their arguments as C++
// does, so that they cost a few instructions while no tape is alive.
#pragma once

namespace ac2::internal {

// To be called once in a process.
void register_typed_writes();

}  // namespace ac2::internal

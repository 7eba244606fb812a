// The dispatch keys that a thread includes for the sake of regions.
//
//   keys = keys - keys_of_regions();   // as they would be without ac2
//
// For code outside of the dispatcher that looks at a thread's keys by itself. Python's operators of higher order
// (torch.cond) dispatch themselves, to the highest key of the thread and the tensors. Without the record key they skip
// it; the ops that they run come to the key.
//
// Threads: concerns the calling thread.
#pragma once

#include <c10/core/DispatchKeySet.h>

namespace ac2::internal {

// The record key, also where no region is open: a thread of the engine has it from the thread that called backward.
// Empty if another library has included that key here.
c10::DispatchKeySet keys_of_regions();

}  // namespace ac2::internal

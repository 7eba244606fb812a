// Kernels behind kRecordKey of common ops that typed_kernels.h does not have: those that write, make views or read a
// number. Where a region rests they pass the op on with its arguments as C++ has them, and write_watch.h sees what is
// written. The boxed fallback would put the arguments on a stack on the heap. Kernels of LibTorch that call ops in
// turn, as select() does, come by here again. Ops that are made of others are not here: they reach the key in inference
// mode alone.
#pragma once

#include "ac2/internal/record/typed_kernels.h"

namespace ac2::internal {

// To be called once in a process. A kernel calls `boxed` where no region rests.
void register_resting_kernels(BoxedInterceptor boxed);

}  // namespace ac2::internal

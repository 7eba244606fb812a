// Ops that Python is to run: under a dispatch mode, or with a tensor subclass among the arguments.
//
//   if (goes_to_python(keys)) dispatch_to_python(op, stack);   // instead of recording the op
//
// Python makes other ops of such an op, and these are what a region records. From LibTorch 2.13 on the record key lies
// below Python, so that only they reach it. Before, the key lies above: the op itself comes first, and what it returns
// is what the mode or the subclass made of it, which a replay of the op alone would not compute.
//
// Threads: any.
#pragma once

#include <ATen/core/stack.h>
#include <c10/core/DispatchKeySet.h>

#include "ac2/internal/libtorch/torch_compat.h"

namespace c10 {
class OperatorHandle;
}  // namespace c10

namespace ac2::internal {

// Whether an op that has come to the record key, with these keys below it, goes to Python next.
inline bool goes_to_python(c10::DispatchKeySet keys) {
  return kRecordKey > c10::DispatchKey::Python && keys.has(c10::DispatchKey::Python);
}

// Runs such an op as the fallback kernel of DispatchKey::Python does, except that what Python calls reaches the record
// key. False, and nothing is done, if the operator has a kernel of its own behind that key.
bool dispatch_to_python(const c10::OperatorHandle& op, torch::jit::Stack* stack);

}  // namespace ac2::internal

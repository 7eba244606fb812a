// Kernels of the commonest ops behind kRecordKey that take their arguments as C++ does. The boxed fallback does the
// same for every op, by way of a stack on the heap.
#pragma once

#include <ATen/core/stack.h>
#include <c10/core/DispatchKeySet.h>

#include "ac2/internal/operators/op_facts.h"

namespace ac2::internal {

using BoxedInterceptor = void (*)(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

// To be called once in a process. A typed kernel calls `boxed` where it has nothing to gain.
void register_typed_kernels(BoxedInterceptor boxed);

}  // namespace ac2::internal

#include "ac2/internal/libtorch/python_dispatch.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/SafePyObject.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/PyInterpreter.h>
#include <c10/core/impl/PyObjectSlot.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>

#include "ac2/internal/libtorch/for_each_tensor.h"

namespace ac2::internal {

namespace {

// The keys that DispatchKey::Python's fallback kernel excludes. Before LibTorch 2.13 the record key is one of them.
constexpr c10::DispatchKeySet kAbovePython =
    c10::DispatchKeySet(c10::DispatchKeySet::FULL) ^
    (c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, c10::DispatchKey::Python) |
     c10::DispatchKeySet(c10::DispatchKey::Python));

// LibTorch has load_pyobj_interpreter() before 2.13 only. From 2.13 on nothing calls this function.
template <class Impl>
const c10::impl::PyInterpreter* interpreter_of(const Impl& impl) {
  if constexpr (requires { impl.pyobj_slot()->load_pyobj_interpreter(); }) {
    return &impl.pyobj_slot()->load_pyobj_interpreter();
  } else {
    return nullptr;
  }
}

// The interpreter of the innermost mode, else of the first argument that has one. Null if there is none.
const c10::impl::PyInterpreter* interpreter_for(c10::ArrayRef<c10::IValue> arguments) {
  using Modes = c10::impl::TorchDispatchModeTLS;
  if (const int64_t modes = Modes::stack_len(); modes > 0) {
    return &Modes::get_stack_at(modes - 1)->pyinterpreter();
  }
  const c10::impl::PyInterpreter* interpreter = nullptr;
  for_each_tensor(arguments, [&](const at::Tensor& tensor) {
    if (interpreter == nullptr && tensor.defined() && tensor.key_set().has(c10::DispatchKey::Python)) {
      interpreter = interpreter_of(*tensor.unsafeGetTensorImpl());
    }
  });
  return interpreter;
}

}  // namespace

bool dispatch_to_python(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  if (op.hasKernelForDispatchKey(c10::DispatchKey::Python)) {
    return false;
  }
  const size_t arguments = op.schema().arguments().size();
  const auto* interpreter = interpreter_for(c10::ArrayRef<c10::IValue>(*stack).slice(stack->size() - arguments));
  if (interpreter == nullptr) {
    return false;
  }
  const c10::impl::ExcludeDispatchKeyGuard guard(kAbovePython.remove(kRecordKey));
  (*interpreter)->dispatch(op, stack);
  return true;
}

}  // namespace ac2::internal

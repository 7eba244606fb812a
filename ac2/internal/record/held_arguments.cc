#include "ac2/internal/record/held_arguments.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include "ac2/internal/libtorch/torch_compat.h"
#include "ac2/internal/region/region.h"

namespace ac2::internal {

namespace {

// The arguments stay on the stack until the kernel that takes them as C++ does has returned. Ops inside of the op take
// theirs from there, so that these need not be held again.
void hold_arguments(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard guard(kHoldKey);
  op.redispatchBoxed(keys & kBelowHoldKey, stack);
}

bool install() {
  if (c10::Dispatcher::singleton().hasBackendFallbackForDispatchKey(kHoldKey)) {
    return false;
  }
  // Leaked with its registration: ops may run during static destruction.
  static auto* library = new torch::Library(torch::Library::IMPL, "_", kHoldKey, __FILE__, __LINE__);
  library->fallback(torch::CppFunction::makeFromBoxedFunction<&hold_arguments>());
  return true;
}

}  // namespace

void install_holding() {
  static const bool installed = install();
  ThreadRegions::here().may_hold_arguments(installed);
}

}  // namespace ac2::internal

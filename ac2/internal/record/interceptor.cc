#include "ac2/internal/record/interceptor.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <utility>

#include "ac2/internal/libtorch/out_of_memory.h"
#include "ac2/internal/libtorch/python_dispatch.h"
#include "ac2/internal/libtorch/torch_compat.h"
#include "ac2/internal/locks/fork_locks.h"
#include "ac2/internal/locks/mutex.h"
#include "ac2/internal/operators/op_facts.h"
#include "ac2/internal/operators/random_replay.h"
#include "ac2/internal/record/record_call.h"
#include "ac2/internal/record/resting_kernels.h"
#include "ac2/internal/record/shared_key.h"
#include "ac2/internal/record/typed_kernels.h"
#include "ac2/internal/region/region.h"
#include "ac2/internal/region/resting.h"
#include "ac2/internal/replay/replay_call.h"

namespace ac2::internal {

namespace {

// An op inside an op that is being replayed, on its way to the generator.
void draw_redirected(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const OpFacts& facts = op_facts(op);
  if (facts.draws && facts.generator_argument >= 0) {
    c10::IValue& generator = (*stack)[stack->size() - facts.num_arguments + facts.generator_argument];
    if (const at::Generator* redirected = ReplayedDraws::redirected(); generator.isNone() && redirected != nullptr) {
      generator = *redirected;
    }
    const c10::impl::ExcludeDispatchKeyGuard guard(kRecordKey);
    op.redispatchBoxed(keys, stack);
    return;
  }
  op.redispatchBoxed(keys, stack);
}

// With the arguments that the op has left on the stack.
FailedCall failed_call(const OpFacts& facts, const torch::jit::Stack& stack) {
  const size_t count = std::min<size_t>(facts.num_arguments, stack.size());
  return {.op = facts.name, .arguments = c10::ArrayRef<c10::IValue>(stack).slice(stack.size() - count)};
}

void intercept(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const c10::DispatchKeySet below = keys & kBelowRecordKey;
  if (is_replaying()) {
    draw_redirected(op, below, stack);
    return;
  }
  const bool is_for_python = goes_to_python(below);
  if (is_for_python && dispatch_to_python(op, stack)) {
    return;
  }
  if (is_resting()) {
    op.redispatchBoxed(below, stack);
    return;
  }
  ThreadRegions& regions = ThreadRegions::here();
  const c10::impl::PODLocalDispatchKeySet tls_keys = c10::impl::raw_local_dispatch_key_set;
  const c10::impl::ExcludeDispatchKeyGuard guard(kRecordKey);
  if (Region* region = is_for_python || regions.is_within_op() ? nullptr : regions.recording()) {
    const OpFacts& facts = op_facts(op);
    with_out_of_memory_note([&] { record_call(*region, facts, below, tls_keys, stack); },
                            [&] { return failed_call(facts, *stack); });
  } else if (Region* bystander = regions.innermost()) {
    // The ops of a backward without create_graph, inside a region, those inside of the op in which it began, and what
    // Python does in a way of its own: not recorded, but what they overwrite may be needed.
    run_unrecorded(*bystander, op_facts(op), below, stack);
  } else {
    // A pool thread of the engine can have the key included and no region of its own.
    op.redispatchBoxed(below, stack);
  }
}

void put_kernels_behind_record_key() {
  if (c10::Dispatcher::singleton().hasBackendFallbackForDispatchKey(kRecordKey)) {
    share_key(&intercept);
    return;
  }
  // Leaked with its registration: ops may run during static destruction.
  static auto* library = new torch::Library(torch::Library::IMPL, "_", kRecordKey, __FILE__, __LINE__);
  library->fallback(torch::CppFunction::makeFromBoxedFunction<&intercept>());
  register_typed_kernels(&intercept);
  register_resting_kernels(&intercept);
}

}  // namespace

void install_interceptor() {
  // Every region comes here. A mutex that each of them took would be another thread's at many a fork().
  static std::atomic<bool> is_installed{false};
  if (is_installed.load(std::memory_order_acquire)) {
    register_new_operators();
    return;
  }
  static auto& mutex = ForkLocks::make_first<Mutex>();
  const MutexLock lock(mutex);
  if (!is_installed.load(std::memory_order_relaxed)) {
    put_kernels_behind_record_key();
    is_installed.store(true, std::memory_order_release);
  }
}

}  // namespace ac2::internal

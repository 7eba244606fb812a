#include "ac2/internal/record/shared_key.h"

#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/ArrayRef.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "ac2/internal/libtorch/for_each_tensor.h"
#include "ac2/internal/libtorch/torch_compat.h"
#include "ac2/internal/locks/fork_locks.h"
#include "ac2/internal/locks/mutex.h"
#include "ac2/internal/operators/new_operators.h"
#include "ac2/internal/region/region.h"
#include "ac2/internal/replay/replay_call.h"

namespace ac2::internal {

namespace {

bool belongs_to_other(c10::ArrayRef<c10::IValue> arguments) {
  if (is_replaying()) {
    return false;  // nothing of the other library's was recorded, and a replay may itself have included the key
  }
  if (ThreadRegions::here().found_key_included() || is_in_fake_mode()) {
    return true;
  }
  bool any = false;
  for_each_tensor(arguments, [&](const at::Tensor& tensor) {
    any |= tensor.defined() && tensor.unsafeGetTensorImpl()->key_set().has(kRecordKey);
  });
  return any;
}

// Our kernels and, for each operator that has one, what was behind the key before.
class SharedKey {
 public:
  // Leaked, as the dispatcher's operators.
  static SharedKey& instance() {
    static auto* key = new SharedKey;
    return *key;
  }

  void share(BoxedInterceptor interceptor) {
    interceptor_ = interceptor;
    operators_.emplace();
    register_pending();
  }

  // To be called without the dispatcher's lock. Nothing is pending unless the key is shared.
  void register_pending() {
    if (operators_) {
      operators_->for_each([this](const c10::OperatorHandle& op) { add_kernel(op); });
    }
  }

 private:
  SharedKey() { ForkLocks::add_first(mutex_); }

  static void run(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
    SharedKey& key = instance();
    key.register_pending();
    const size_t arguments = op.schema().arguments().size();
    if (!belongs_to_other(c10::ArrayRef<c10::IValue>(*stack).slice(stack->size() - arguments))) {
      key.interceptor_(op, keys, stack);
      return;
    }
    const c10::KernelFunction& kernel = key.other(op);
    if (kernel.isFallthrough()) {
      op.redispatchBoxed(keys & kBelowRecordKey, stack);
    } else {
      kernel.callBoxed(op, keys, stack);
    }
  }

  void add_kernel(const c10::OperatorHandle& op) {
    const MutexLock lock(mutex_);
    const auto [place, is_new] = others_.try_emplace(op.operator_name());
    // An operator that was unloaded and loaded again still has our kernel.
    if (is_new) {
      place->second = std::make_unique<c10::KernelFunction>(kernel_behind_record_key(op));
      ours_.push_back(c10::Dispatcher::singleton().registerImpl(
          op.operator_name(), kRecordKey, c10::KernelFunction::makeFromBoxedFunction<&SharedKey::run>(), std::nullopt,
          nullptr, "ac2, recording beside the fallback of another library"));
    }
  }

  const c10::KernelFunction& other(const c10::OperatorHandle& op) {
    const MutexLock lock(mutex_);
    return *others_.at(op.operator_name());
  }

  BoxedInterceptor interceptor_ = nullptr;
  std::optional<NewOperators> operators_;  // once the key is shared
  Mutex mutex_;
  absl::flat_hash_map<c10::OperatorName, std::unique_ptr<c10::KernelFunction>> others_ ABSL_GUARDED_BY(mutex_);
  std::vector<c10::RegistrationHandleRAII> ours_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

void share_key(BoxedInterceptor interceptor) {
  SharedKey::instance().share(interceptor);
}

void register_new_operators() {
  SharedKey::instance().register_pending();
}

}  // namespace ac2::internal

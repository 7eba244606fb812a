#include "ac2/internal/record/shared_key.h"

#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/ArrayRef.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "ac2/internal/libtorch/for_each_tensor.h"
#include "ac2/internal/libtorch/torch_compat.h"
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
    // The listener is told of all operators that there are, and then of each new one.
    listening_.emplace(c10::Dispatcher::singleton().addRegistrationListener(std::make_unique<Listener>()));
    register_pending();
  }

  // To be called without the dispatcher's lock. Nothing is pending unless the key is shared.
  void register_pending() {
    if (!any_pending_.load(std::memory_order_acquire)) {
      return;
    }
    const std::lock_guard lock(mutex_);
    do {
      for (const c10::OperatorHandle& op : take_pending()) {
        add_kernel(op);
      }
    } while (!nothing_is_pending());
  }

 private:
  // The dispatcher calls it with its lock.
  class Listener final : public c10::OpRegistrationListener {
   public:
    void onOperatorRegistered(const c10::OperatorHandle& op) override {
      SharedKey& key = instance();
      const std::lock_guard lock(key.pending_mutex_);
      key.pending_.push_back(op);
      key.any_pending_.store(true, std::memory_order_release);
    }
    void onOperatorDeregistered(const c10::OperatorHandle& op) override {
      SharedKey& key = instance();
      const std::lock_guard lock(key.pending_mutex_);
      std::erase(key.pending_, op);
    }
  };

  SharedKey() = default;

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
    const std::lock_guard lock(mutex_);
    return *others_.at(op.operator_name());
  }

  std::vector<c10::OperatorHandle> take_pending() {
    const std::lock_guard lock(pending_mutex_);
    return std::exchange(pending_, {});
  }

  // Called only after the kernels are there, because a thread that reads false does not wait for them. Its acquire
  // pairs with this release.
  bool nothing_is_pending() {
    const std::lock_guard lock(pending_mutex_);
    if (pending_.empty()) {
      any_pending_.store(false, std::memory_order_release);
    }
    return pending_.empty();
  }

  BoxedInterceptor interceptor_ = nullptr;
  std::optional<c10::RegistrationHandleRAII> listening_;
  std::atomic<bool> any_pending_{false};
  std::mutex pending_mutex_;  // taken with the dispatcher's lock, so nothing is called under it
  std::vector<c10::OperatorHandle> pending_;
  std::mutex mutex_;
  absl::flat_hash_map<c10::OperatorName, std::unique_ptr<c10::KernelFunction>> others_;
  std::vector<c10::RegistrationHandleRAII> ours_;
};

}  // namespace

void share_key(BoxedInterceptor interceptor) {
  SharedKey::instance().share(interceptor);
}

void register_new_operators() {
  SharedKey::instance().register_pending();
}

}  // namespace ac2::internal

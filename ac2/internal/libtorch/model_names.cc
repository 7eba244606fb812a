#include "ac2/internal/libtorch/model_names.h"

#include <c10/core/TensorImpl.h>
#include <c10/util/intrusive_ptr.h>

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "ac2/internal/libtorch/tensor_meta.h"
#include "ac2/internal/locks/fork_locks.h"
#include "ac2/internal/locks/mutex.h"

namespace ac2::internal {

namespace {

class NamesOfParameters {
 public:
  static NamesOfParameters& get() {
    static auto* all = new NamesOfParameters;  // leaked: reports may be asked for while the program ends
    return *all;
  }

  void note(const torch::OrderedDict<std::string, at::Tensor>& named_parameters) {
    const MutexLock lock(mutex_);
    for (const auto& named : named_parameters) {
      const at::Tensor& parameter = named.value();
      if (parameter.defined()) {
        names_.insert_or_assign(
            parameter.unsafeGetTensorImpl(),
            Noted{c10::weak_intrusive_ptr<c10::TensorImpl>(parameter.getIntrusivePtr()), named.key()});
      }
    }
    if (names_.size() >= sweep_at_) {
      absl::erase_if(names_, [](const auto& entry) { return entry.second.parameter.expired(); });
      sweep_at_ = std::max(kFewest, 2 * names_.size());
    }
  }

  StorageNames names() {
    StorageNames found;
    std::vector<c10::intrusive_ptr<c10::TensorImpl>> locked;  // the last reference to one goes after the lock
    const MutexLock lock(mutex_);
    for (const auto& [address, noted] : names_) {
      auto parameter = noted.parameter.lock();
      if (parameter && has_plain_storage(*parameter)) {
        found.emplace_back(parameter->unsafe_storage().unsafeGetStorageImpl(), noted.name);
        locked.push_back(std::move(parameter));
      }
    }
    return found;
  }

 private:
  static constexpr size_t kFewest = 1024;
  struct Noted {
    c10::weak_intrusive_ptr<c10::TensorImpl> parameter;
    std::string name;
  };

  NamesOfParameters() { ForkLocks::add_last(mutex_); }

  Mutex mutex_;
  absl::flat_hash_map<const c10::TensorImpl*, Noted> names_ ABSL_GUARDED_BY(mutex_);
  size_t sweep_at_ ABSL_GUARDED_BY(mutex_) = kFewest;
};

}  // namespace

void note_model(const torch::OrderedDict<std::string, at::Tensor>& named_parameters) {
  NamesOfParameters::get().note(named_parameters);
}

StorageNames model_names() {
  return NamesOfParameters::get().names();
}

}  // namespace ac2::internal

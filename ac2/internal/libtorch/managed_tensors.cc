#include "ac2/internal/libtorch/managed_tensors.h"

#include <c10/util/ArrayRef.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "ac2/internal/libtorch/tensor_meta.h"
#include "ac2/internal/locks/fork_locks.h"
#include "ac2/internal/locks/mutex.h"

namespace ac2::internal {

std::ostream& operator<<(std::ostream& out, const ManagedLayout& layout) {
  return out << c10::toString(layout.dtype) << " of sizes " << c10::IntArrayRef(layout.sizes) << " and strides "
             << c10::IntArrayRef(layout.strides);
}

ManagedLayout ManagedTensor::layout() const {
  const c10::TensorImpl& impl = *tensor._unsafe_get_target();
  return {c10::typeMetaToScalarType(impl.dtype()),
          {impl.sizes().begin(), impl.sizes().end()},
          {impl.strides().begin(), impl.strides().end()}};
}

namespace managed_tensors_detail {
std::atomic<bool> any{false};
std::atomic<bool> any_with_gatherer{false};
std::atomic<bool> gatherer_communicates{false};
}  // namespace managed_tensors_detail

namespace {

// Whether the tensor is all that lies in its storage, in whatever layout, but for what pads it at the end.
bool fills_its_storage(const c10::TensorImpl& tensor) {
  return tensor.storage_offset() == 0 && tensor.numel() > 0 && tensor.is_non_overlapping_and_dense();
}

class Registry {
 public:
  Registry() { ForkLocks::add_last(mutex_); }

  void add(const at::Tensor& tensor, ManagedTensor described) {
    auto managed = std::make_shared<ManagedTensor>(std::move(described));
    managed->tensor = c10::weak_intrusive_ptr<c10::TensorImpl>(tensor.getIntrusivePtr());
    const MutexLock lock(mutex_);
    if (++added_ >= sweep_at_) {
      sweep();
    }
    if (managed->moves) {
      moving_.insert_or_assign(tensor.unsafeGetTensorImpl(), std::move(managed));
    } else {
      resized_.insert_or_assign(tensor.storage().unsafeGetStorageImpl(), std::move(managed));
    }
    managed_tensors_detail::any.store(true, std::memory_order_relaxed);
  }

  std::shared_ptr<const ManagedTensor> find(const c10::StorageImpl& storage) {
    const MutexLock lock(mutex_);
    if (const auto it = resized_.find(&storage); it != resized_.end()) {
      if (it->second->is_alive() && it->second->storage().unsafeGetStorageImpl() == &storage) {
        return it->second;
      }
      resized_.erase(it);  // the address is another storage's by now, perhaps one of a tensor that moves
    }
    for (const auto& [impl, managed] : moving_) {
      if (managed->is_alive() && impl->has_storage() && impl->storage().unsafeGetStorageImpl() == &storage &&
          fills_its_storage(*impl)) {
        return managed;
      }
    }
    return nullptr;
  }

 private:
  void sweep() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    absl::erase_if(resized_, [](const auto& entry) { return !entry.second->is_alive(); });
    absl::erase_if(moving_, [](const auto& entry) { return !entry.second->is_alive(); });
    added_ = resized_.size() + moving_.size();
    sweep_at_ = std::max(kLeastSwept, 2 * added_);
  }

  static constexpr size_t kLeastSwept = 64;

  Mutex mutex_;
  absl::flat_hash_map<const c10::StorageImpl*, std::shared_ptr<const ManagedTensor>> resized_ ABSL_GUARDED_BY(mutex_);
  // Of a tensor that moves nobody says when it does, so that all of them are looked at.
  absl::flat_hash_map<const c10::TensorImpl*, std::shared_ptr<const ManagedTensor>> moving_ ABSL_GUARDED_BY(mutex_);
  size_t added_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t sweep_at_ ABSL_GUARDED_BY(mutex_) = kLeastSwept;
};

// Leaked: regions may be open on other threads while the process ends.
Registry& registry() {
  static auto* registry = new Registry;
  return *registry;
}

// Leaked too. Written once, before the flag that a reader looks at.
GatherUnits& the_gatherer() {
  static auto* gatherer = new GatherUnits;
  return *gatherer;
}

void check(const at::Tensor& tensor) {
  TORCH_CHECK(has_plain_storage(tensor), "A tensor whose bytes come and go must have a storage of its own; found ",
              tensor.toString(), ". Name the tensor that it is made of.");
}

}  // namespace

std::shared_ptr<const ManagedTensor> managed_tensors_detail::find(const c10::StorageImpl& storage) {
  return registry().find(storage);
}

void manage_storage(const at::Tensor& tensor, std::string name, bool is_out_of_date) {
  check(tensor);
  registry().add(tensor, {.is_out_of_date = is_out_of_date, .name = std::move(name)});
}

void manage_data(const at::Tensor& tensor, std::string name, bool has_gatherer) {
  check(tensor);
  registry().add(tensor, {.moves = true, .has_gatherer = has_gatherer, .name = std::move(name)});
  if (has_gatherer) {
    managed_tensors_detail::any_with_gatherer.store(true, std::memory_order_relaxed);
  }
}

void set_gatherer(GatherUnits gatherer) {
  the_gatherer() = std::move(gatherer);
}

void set_gatherer_communicates() {
  managed_tensors_detail::gatherer_communicates.store(true, std::memory_order_relaxed);
}

const GatherUnits& gatherer() {
  return the_gatherer();
}

}  // namespace ac2::internal

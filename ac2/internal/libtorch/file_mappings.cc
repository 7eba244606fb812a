#include "ac2/internal/libtorch/file_mappings.h"

#include <c10/util/intrusive_ptr.h>
#include <dlfcn.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "ac2/internal/libtorch/process_mappings.h"
#include "ac2/internal/locks/fork_locks.h"
#include "ac2/internal/locks/mutex.h"

namespace ac2::internal {

namespace {

bool stays(const Mapping* mapping, const void* data, bool may_be_written) {
  if (mapping == nullptr || !mapping->file) {
    return false;
  }
  if (!mapping->writable) {
    return true;
  }
  Dl_info library;
  return !may_be_written && mapping->is_private && dladdr(data, &library) == 0;
}

// The answers for storages that were asked about.
class KnownStorages {
 public:
  std::optional<bool> stays(const c10::StorageImpl* storage, const void* data) const {
    const auto known = storages_.find(storage);
    return known != storages_.end() && known->second.data == data ? std::optional(known->second.stays) : std::nullopt;
  }
  void add(c10::StorageImpl* storage, const void* data, bool stays) {
    if (storages_.size() >= sweep_at_) {
      std::erase_if(storages_, [](const auto& entry) { return entry.second.storage.expired(); });
      sweep_at_ = std::max(kLeastSwept, 2 * storages_.size());
    }
    storages_.insert_or_assign(
        storage,
        Known{data, stays,
              c10::weak_intrusive_ptr<c10::StorageImpl>(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(storage))});
  }

 private:
  struct Known {
    const void* data;
    bool stays;
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;  // keeps the address from being another storage's
  };
  static constexpr size_t kLeastSwept = 64;

  std::unordered_map<const c10::StorageImpl*, Known> storages_;
  size_t sweep_at_ = kLeastSwept;
};

// Smaller storages are looked up in the list that was read last. If the list is out of date, a file that stays may be
// taken for other memory, and each op then copies at most this many bytes. Reading the list for each would cost more.
constexpr size_t kLittle = size_t{64} << 10;

}  // namespace

bool is_file_that_stays(c10::StorageImpl& storage, bool may_be_written) {
  // Leaked: tensors with static lifetime may be asked about after main().
  static auto& mutex = ForkLocks::make_last();
  // The list as it was read last. Mappings may have been replaced since.
  static auto* last ABSL_PT_GUARDED_BY(mutex) = new std::vector<Mapping>;
  static auto* known ABSL_PT_GUARDED_BY(mutex) = new KnownStorages;
  const void* data = storage._mutable_data_ptr_no_checks().get();
  const auto begin = reinterpret_cast<uintptr_t>(data);
  const uintptr_t end = begin + storage.nbytes();
  const MutexLock lock(mutex);
  if (const std::optional<bool> before = known->stays(&storage, data)) {
    return *before;
  }
  // The old list may give the answer false for a small storage. The answer true always comes from a new list.
  const Mapping* before = storage.nbytes() < kLittle ? find_mapping(*last, begin, end) : nullptr;
  if (before != nullptr && !stays(before, data, may_be_written)) {
    return false;
  }
  *last = read_mappings();
  const bool now = stays(find_mapping(*last, begin, end), data, may_be_written);
  known->add(&storage, data, now);
  return now;
}

}  // namespace ac2::internal

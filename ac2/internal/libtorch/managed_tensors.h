// Parameters whose bytes come and go: something else gathers them where they are needed, and lets go of them after.
//
//   manage_storage(unsharded, "blocks.0.weight (unit blocks.0)");   // its storage is resized to 0 bytes and back
//   manage_storage(unsharded, "blocks.0.weight", true);             // the bytes that come back are others
//   manage_data(parameter, "blocks.0.weight");                      // is given other data, and none in between
//   manage_data(parameter, "blocks.0.weight", true);                // and set_gatherer()'s function gathers it
//   if (const auto managed = managed_in(storage)) …                 // when a region first meets the storage
//
// A value over such a storage is not ac2's to hold. The value has no bytes of its own, is never copied, counted, packed
// or offloaded, and is found again when somebody reads it. A reader gets an error with the name while the bytes are not
// there.
//
// A tensor shares its storage with no other parameter; managed_in() finds no other ones. Whenever its bytes are there
// it has the same layout. A reader gets an error if it has another.
//
// Rejected: recording the gathering as other ops are (a replay from the gathered buffer would hold all parameters);
// telling such a storage by its size alone (one without bytes may be one that the program has given up).
//
// Guaranteed: no reference to a tensor or storage. All that is known of tensors and storages that have died is
// forgotten. A process that manages nothing pays one load for each storage that a region meets.
//
// Threads: any. Its lock is taken below a tape's.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>
#include <c10/core/Storage.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>
#include <c10/macros/Macros.h>
#include <c10/util/SmallVector.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

namespace ac2::internal {

// In which the bytes of a tensor lie.
struct ManagedLayout {
  at::ScalarType dtype = at::ScalarType::Undefined;
  c10::SmallVector<int64_t, 4> sizes, strides;
  bool operator==(const ManagedLayout&) const = default;
};
std::ostream& operator<<(std::ostream& out, const ManagedLayout& layout);

// A managed tensor.
struct ManagedTensor {
  // Whose storage it is at any time. Read without a strong reference, for which Python's lock may be needed.
  c10::weak_intrusive_ptr<c10::TensorImpl> tensor{c10::intrusive_ptr<c10::TensorImpl>()};
  bool moves = false;           // the tensor gets other data; else its storage stays, and is resized
  bool is_out_of_date = false;  // in backward it may have other bytes than now: nobody reads it again in place of these
  bool has_gatherer = false;    // the process's gatherer brings its bytes back, in any region
  std::string name;

  bool is_alive() const { return !tensor.expired(); }
  // The tensor must be alive.
  const c10::Storage& storage() const { return tensor._unsafe_get_target()->storage(); }
  // Its bytes have been let go of and not gathered yet.
  bool is_missing() const { return is_alive() && storage().nbytes() == 0; }
  int64_t storage_offset() const { return tensor._unsafe_get_target()->storage_offset(); }
  ManagedLayout layout() const;
};

// Brings the bytes of managed tensors back; see ScopeOptions::gather_units.
using GatherUnits = std::function<void(const std::vector<at::Tensor>&)>;

// `tensor` has a plain storage, which stays its own. The last call for a storage holds for the regions that meet it
// after.
void manage_storage(const at::Tensor& tensor, std::string name, bool is_out_of_date = false);
void manage_data(const at::Tensor& tensor, std::string name, bool has_gatherer = false);

// Called in backward, before a replay, with managed tensors that have a gatherer and whose bytes are missing. To be set
// once, before the first such tensor.
void set_gatherer(GatherUnits gatherer);
const GatherUnits& gatherer();
// The gatherer communicates for some tensors, so that all processes must replay the same ops.
void set_gatherer_communicates();

namespace managed_tensors_detail {
// Relaxed, because the entries that find() reads are under a lock. A tensor is managed before a region has it, be it by
// the order that the program makes between its threads. A relaxed load sees all that happened before.
extern std::atomic<bool> any;
extern std::atomic<bool> any_with_gatherer;
extern std::atomic<bool> gatherer_communicates;
std::shared_ptr<const ManagedTensor> find(const c10::StorageImpl& storage);
}  // namespace managed_tensors_detail

// The managed tensor that lies in `storage`; null if there is none.
inline std::shared_ptr<const ManagedTensor> managed_in(const c10::StorageImpl& storage) {
  if (C10_LIKELY(!managed_tensors_detail::any.load(std::memory_order_relaxed))) {
    return nullptr;
  }
  return managed_tensors_detail::find(storage);
}

// Whether a tensor with a gatherer has ever been managed.
inline bool any_has_gatherer() {
  return managed_tensors_detail::any_with_gatherer.load(std::memory_order_relaxed);
}

inline bool gatherer_communicates() {
  return managed_tensors_detail::gatherer_communicates.load(std::memory_order_relaxed);
}

inline bool is_managed(const c10::StorageImpl& storage) {
  return managed_in(storage) != nullptr;
}

}  // namespace ac2::internal

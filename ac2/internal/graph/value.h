// Values: what the trace knows of the bytes of one storage between two writes.
//
// A value's bytes may be in up to four places at once: where forward computed them (`origin`), in a reference that the
// tape holds for backward (`held`), in the form that SaveWithHooks or offloading made of them (`form`), and in what a
// replay made for the backward under way (`real`).
//
// Four counts say who is interested, each a subset of the one before:
//
//   refs    whoever knows the value at all: the storage index, hooks, nodes that take it as input. It dies with the
//   last. users   hooks, and nodes that may have to be replayed. A saved value's bytes are held while there is one.
//   hooks   what autograd holds of it.
//   pins    hooks and waiting nodes of the backwards under way. Replayed bytes stay while there is one.
//
// Threads: guarded by the tape's lock.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Storage.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <variant>

#include "ac2/internal/eviction/evictor_ids.h"
#include "ac2/internal/graph/seen_writes.h"
#include "ac2/internal/graph/watched_versions.h"
#include "ac2/internal/libtorch/stream_order.h"
#include "ac2/internal/libtorch/tensor_meta.h"
#include "ac2/policy.h"

namespace ac2::internal {

struct Node;

// The bytes as SaveWithHooks, or offloading, keeps them.
struct PackedForm {
  enum class Stage : uint8_t { kInPlace, kPacking, kPacked };

  std::shared_ptr<const SaveWithHooks> functions;
  TensorMeta meta;     // of the tensor that pack is given
  c10::IValue packed;  // what pack returned; set while kPacked
  int64_t packed_bytes = 0;
  Stage stage = Stage::kInPlace;
  bool is_offload = false;              // the functions are those of offloading; see tape/offloading.h
  c10::StreamId packed_on = kNoStream;  // the stream whose work pack's was
};

// A tensor without plain storage, kept whole or by its parts.
struct OpaqueForm {
  c10::weak_intrusive_ptr<c10::TensorImpl> origin{c10::intrusive_ptr<c10::TensorImpl>()};
  at::Tensor held;  // while the value has users
  // An alias for `held`, made beforehand where making one calls Python, which must not happen under the tape's lock.
  at::Tensor alias;
  c10::IValue parts;  // in place of `held`, of a tensor that is made of others: SavedTensorHook's hooks on these
};

// As what a budget counts bytes that it cannot drop. Those of tracked values count by their place instead.
enum class Counted : uint8_t { kNot, kUntracked, kFixed, kOutside };

// What a budget knows of a value.
struct BudgetedValue {
  ValueId id = kNoId;
  bool droppable : 1 = false;    // the budget may drop its bytes
  bool tracked : 1 = false;      // the budget's evictor knows of it
  bool keep : 1 = false;         // not saved, but held while hooks want it and the budget allows
  Counted held = Counted::kNot;  // for `held`, or what was packed
  Counted real = Counted::kNot;  // for `real`
  Retention retention = Retention::kPreferSave;
};

struct Value {
  static constexpr uint32_t kNotInMap = ~uint32_t{0};

  Node* producer = nullptr;        // owned; null for values from outside the region
  uint32_t slot = 0;               // in producer->outputs
  uint32_t map_index = kNotInMap;  // see StorageMap
  Value* next_dead = nullptr;

  int32_t refs = 0;
  int32_t users = 0;
  int32_t hooks = 0;
  int32_t pins = 0;

  bool saved = true;              // held while it has users; otherwise replayed from its producer
  bool tagged = false;            // decided by tag_with_policy, which no name overrules
  bool waits = false;             // pinned, and its producer must be replayed first
  bool held_is_private = false;   // `held` is a copy that nobody else can write to
  bool real_is_original = false;  // `real` is `origin`, not what a replay made
  bool let_go = false;            // in ValueBytes' list of these, which has a reference of its own
  bool foreign = false;           // its bytes lie in memory that others may write to; see libtorch/foreign_memory.h
  bool without_gradient = false;  // surely no graph led to it where an op made it, or took it last
  BudgetedValue budget;
  WatchedVersions versions;
  size_t nbytes = 0;

  c10::weak_intrusive_ptr<c10::StorageImpl> origin;  // what forward computed
  c10::Storage held;                                 // while saved and used
  at::Tensor leaf;      // over `held` when autograd saved it, which reads what data it has in backward; few have one
  c10::Storage real;    // while pinned
  at::Tensor replayed;  // over `real`, as the op returned it
  c10::StreamId stream = kNoStream;  // on which a replay made `real`, or it was last used since
  std::unique_ptr<std::variant<PackedForm, OpaqueForm>> form;  // null for a value that is simply a storage
  std::unique_ptr<std::string> name;                           // that name_tensor() gave it; null if none

  Value() : origin(c10::intrusive_ptr<c10::StorageImpl>()) {}
  explicit Value(const c10::Storage& storage)
      : nbytes(storage.unsafeGetStorageImpl()->nbytes()), origin(storage.getWeakStorageImpl()) {}

  // Null if it has no such form.
  PackedForm* packed_form() { return std::get_if<PackedForm>(form.get()); }
  const PackedForm* packed_form() const { return std::get_if<PackedForm>(form.get()); }
  OpaqueForm* opaque_form() { return std::get_if<OpaqueForm>(form.get()); }
  const OpaqueForm* opaque_form() const { return std::get_if<OpaqueForm>(form.get()); }

  bool is_opaque() const { return opaque_form() != nullptr; }
  bool is_packed() const { return packed_form() != nullptr && packed_form()->stage == PackedForm::Stage::kPacked; }
  bool is_offloaded() const { return is_packed() && packed_form()->is_offload; }
  // Somebody whom ac2 does not see has written to it since its versions were noted.
  bool changed_outside() const {
    return C10_UNLIKELY(versions.changed()) &&
           (watched_storage() == nullptr || versions.changed(seen_writes(), watched_storage()));
  }
  // The storage that the versions are about; null for a tensor without a plain one.
  const c10::StorageImpl* watched_storage() const {
    return held && !held_is_private ? held.unsafeGetStorageImpl() : origin._unsafe_get_target();
  }
  int64_t bytes() const { return static_cast<int64_t>(nbytes); }
  // Nobody but the tape has the bytes.
  bool is_held_by_us_alone() const { return held && held.use_count() == (leaf_is_ours_alone() ? 2 : 1); }
  // Nobody but the tape has the leaf, and it lies where it lay.
  bool leaf_is_ours_alone() const {
    return leaf.defined() && leaf.use_count() == 1 && leaf.storage().is_alias_of(held);
  }
};

}  // namespace ac2::internal

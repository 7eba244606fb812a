// Values: the bytes of one storage between two writes, as the tape knows them.
//
// A value's bytes may be in several places at once: where forward computed them (the original), in what the tape holds
// for backward (Held), and in what is there for the backwards under way (There); value_state.h says what these can be.
// Other files ask by meaning (is_lost_by_a_write(), is_at_hand(), …). ValueBytes changes the state and the form,
// StorageIndex what the value knows of its storage; value_parts.h says who changes the rest.
//
// Four counts say who is interested, each a subset of the one before:
//
//   refs    all that know the value: the storage index, hooks, nodes that take it. The value dies with the last.
//   users   hooks, and nodes that may have to be replayed. A saved value's bytes are held while there is one.
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
#include <utility>
#include <variant>

#include "ac2/internal/graph/seen_writes.h"
#include "ac2/internal/graph/value_forms.h"
#include "ac2/internal/graph/value_parts.h"
#include "ac2/internal/graph/value_state.h"
#include "ac2/internal/graph/watched_versions.h"
#include "ac2/internal/libtorch/stream_order.h"

namespace ac2::internal {

// The bytes for which a value counts in TraceStats.
struct CountedBytes {
  int64_t saved = 0;
  int64_t offloaded = 0;
  int64_t recomputed = 0;
};

class Value {
 public:
  Value() : original_(c10::intrusive_ptr<c10::StorageImpl>()) {}
  explicit Value(const c10::Storage& storage)
      : nbytes_(storage.unsafeGetStorageImpl()->nbytes()), original_(storage.getWeakStorageImpl()) {}

  // The storage that forward computed. Of a storage that has died the address is all that is left.
  c10::StorageImpl* original_address() const { return original_._unsafe_get_target(); }
  bool original_is_alive() const { return !original_.expired(); }
  // Null if it has died.
  c10::intrusive_ptr<c10::StorageImpl> lock_original() const { return original_.lock(); }
  const c10::weak_intrusive_ptr<c10::StorageImpl>& weak_original() const { return original_; }

  const WatchedVersions& versions() const { return versions_; }
  // The versions are to be noted anew.
  void forget_versions() { versions_ = WatchedVersions(); }
  // Nobody has written to the value, although a counter that it watches has gone up.
  void catch_up_versions() { versions_.catch_up(); }
  // The value is `old` after a write that moves no counter, or after one to `tensor`.
  void watch_versions_as(const Value& old) { versions_.watch_as(old.versions_); }
  void watch_versions_after_write(const Value& old, const at::Tensor& tensor) {
    versions_.watch_after_write(old.versions_, tensor);
  }

  // A byte_sample() of what its op left, until somebody reads that for the first time; see tape/first_read.h. 0 if none
  // was taken.
  uint32_t sample() const { return sample_; }
  void set_sample(uint32_t sample) { sample_ = sample; }

  // The stream on which a replay made the bytes that are there, or on which they were last used since.
  c10::StreamId stream() const { return stream_; }
  void set_stream(c10::StreamId stream) { stream_ = stream; }

  // The name that name_tensor() gave the value; null if none did.
  const std::string* name() const { return name_.get(); }
  void set_name(std::string name) { name_ = std::make_unique<std::string>(std::move(name)); }

  // A value without a form is simply a storage.
  bool has_form() const { return form_ != nullptr; }

  const BudgetedValue& budget() const { return parts.budget; }

  // The node that computed it; null for values from outside the region.
  Node* producer() const { return parts.producer; }
  // Its place in producer()->outputs.
  uint32_t slot() const { return parts.slot; }
  size_t nbytes() const { return nbytes_; }
  int64_t bytes() const { return static_cast<int64_t>(nbytes_); }

  int32_t hooks() const { return parts.hooks; }
  bool is_used() const { return parts.users > 0; }
  // Nodes that may have to be replayed take the value.
  bool is_used_by_ops() const { return parts.users > parts.hooks; }
  bool is_used_only_by(int64_t users) const { return parts.users == users; }
  // One hook that a backward under way reads uses the value, and nothing else does.
  bool is_used_only_by_one_pinned_hook() const { return parts.users == 1 && parts.hooks == 1 && parts.pins == 1; }
  bool has_hooks() const { return parts.hooks > 0; }
  bool is_pinned() const { return parts.pins > 0; }
  bool is_pinned_only_by(int64_t pins) const { return parts.pins == pins; }
  // Only the storage index refers to the value: to find it, and in the list of those that were let go.
  bool is_known_to_index_alone() const { return parts.refs == 1 + static_cast<int32_t>(was_let_go_); }
  // Beside hooks only the storage index refers to the value.
  bool is_known_to_index_and_hooks_alone() const { return parts.refs == 1 + parts.hooks; }
  // The value is pinned, and its producer must be replayed first.
  bool waits() const { return parts.waits; }

  // StorageMap finds it by its storage.
  bool is_in_map() const { return parts.map_index != ValueParts::kNotInMap; }
  // Its bytes may change without any op; see libtorch/foreign_memory.h.
  bool is_foreign() const { return is_foreign_; }
  // A collective has returned the value, and nobody has waited for it. Until then whatever writes there is the
  // collective, so that no versions are noted.
  bool is_on_its_way() const { return is_on_its_way_; }
  // Surely no graph led to it where an op made it, or took it last.
  bool is_without_gradient() const { return is_without_gradient_; }
  void set_without_gradient(bool without) { is_without_gradient_ = without; }

  // The region is over, and others have the value's storage too. tape/shared_storages.h finds the value by it.
  bool is_shared() const { return is_shared_; }
  void set_shared(bool shared) { is_shared_ = shared; }

  ValueState state() const { return state_; }
  // A value from outside is always saved: no op of the region would compute it again.
  Decided decided() const { return parts.producer == nullptr ? Decided::kSave : parts.decided; }
  bool is_tagged() const { return parts.is_tagged; }
  // Its producer is replayed when it is needed and not there. Else it is saved: held while it has users.
  bool counts_on_replay() const { return parts.counts_on_replay; }

  // Null if it has no such form. A value with a packed form is packed, or may come to be.
  const PackedForm* packed_form() const { return std::get_if<PackedForm>(form_.get()); }
  const OpaqueForm* opaque_form() const { return std::get_if<OpaqueForm>(form_.get()); }
  const ManagedForm* managed_form() const { return std::get_if<ManagedForm>(form_.get()); }

  bool is_opaque() const { return opaque_form() != nullptr; }
  bool is_managed() const { return managed_form() != nullptr; }
  bool is_packed() const { return state_.held == Held::kPacked; }
  bool is_offloaded() const { return is_packed() && contains(kOnHost, packed_form()->reason()); }
  // The value is kept under a budget, and was packed into one of the forms that are offered instead of dropped.
  bool is_packed_for_room() const { return is_packed() && packed_form()->reason() == FormReason::kRoom; }
  // The same may be done to the storage that is held.
  bool may_be_packed_for_room() const {
    return is_held_in_a_storage() && packed_form() != nullptr && packed_form()->reason() == FormReason::kRoom;
  }
  // The value is not at hand, and is not replayed for that: it is copied or unpacked where its original is gone.
  bool is_brought_back() const { return is_packed() && packed_form()->reason() != FormReason::kPolicy; }
  // Beside the storage that is held there is a copy of it on the host.
  bool has_host_copy() const { return packed_form() != nullptr && packed_form()->state() == FormState::kBeside; }

  // Somebody whom ac2 does not see has written to it since its versions were noted.
  bool changed_outside() const {
    return C10_UNLIKELY(versions_.changed()) &&
           (watched_storage() == nullptr || versions_.changed(seen_writes(), watched_storage()));
  }
  // The storage that the versions are about; null for a tensor without a plain one.
  const c10::StorageImpl* watched_storage() const {
    return state_.held == Held::kByReference ? held_.unsafeGetStorageImpl() : original_address();
  }

  // The tape holds a storage for the value: the original, a copy, or a replayed one.
  bool is_held_in_a_storage() const { return contains(kInAStorage, state_.held); }
  // That storage; null if there is none, or if it belongs to a managed tensor that moves.
  const c10::Storage& held_storage() const { return held_; }
  bool is_held_by_reference() const { return state_.held == Held::kByReference; }
  // Only the tape can write to the bytes that it holds.
  bool is_held_privately() const { return state_.held == Held::kAsCopy || state_.held == Held::kReplayed; }
  // What is held are the bytes that forward had, or a copy of what stood there when somebody was about to write: no
  // replay has made them, and no form has lost any.
  bool holds_bytes_of_forward() const {
    return is_held_in_a_storage() && state_.held != Held::kReplayed && !has_form();
  }
  // Only the tape has the bytes.
  bool is_held_by_us_alone() const { return held_ && held_.use_count() == 1; }
  // How many of the references to `storage` are the tape's, by way of this value.
  int64_t references_to(const c10::Storage& storage) const {
    const auto is_it = [&](const c10::Storage& other) {
      return other && other.unsafeGetStorageImpl() == storage.unsafeGetStorageImpl() ? 1 : 0;
    };
    return is_it(held_) + is_it(there_) + (replayed_.defined() ? is_it(replayed_.storage()) : 0);
  }
  // The tape has bytes of the value, in whatever form but as a whole tensor.
  bool has_held_bytes() const { return is_held_in_a_storage() || is_packed(); }
  // How many these are.
  int64_t held_bytes() const {
    return is_packed() ? packed_form()->packed_bytes : is_held_in_a_storage() ? bytes() : 0;
  }

  bool is_there() const { return state_.there != There::kNothing; }
  // A replay made the bytes that are there; they are not those that forward computed.
  bool is_replayed() const { return state_.there == There::kReplayed; }
  const c10::Storage& there_storage() const { return there_; }
  // As the op returned it; undefined if nothing was replayed, or an op wrote it.
  const at::Tensor& replayed_tensor() const { return replayed_; }
  // A backward under way reads what forward computed.
  bool original_is_pinned() const { return state_.there == There::kOriginal && is_pinned(); }

  // A read needs nothing to be computed or unpacked first. The read may find that somebody has changed the bytes.
  bool is_at_hand() const { return is_held_in_a_storage() || is_there() || is_opaque(); }
  // A write to the storage would destroy the only bytes from which it could be had.
  bool is_lost_by_a_write() const { return !parts.counts_on_replay && !is_packed() && !is_held_privately(); }
  // The value can be had even when its storage is overwritten: something holds it, or computes it again.
  bool outlives_a_write() const { return parts.counts_on_replay || is_used() || is_packed(); }
  // A replay that has so many of the pins may write into the replayed bytes themselves: nobody else waits for them. A
  // value with a packed form is not written into, because unpack may have returned the very tensor that pack returned.
  bool may_be_overwritten_in_place(int64_t own_pins) const {
    return !is_held_in_a_storage() && is_replayed() && packed_form() == nullptr && is_pinned_only_by(own_pins);
  }
  // The value is held for what autograd saved, and for nothing else.
  bool is_held_for_hooks_alone() const {
    return !parts.counts_on_replay && is_held_by_reference() && parts.users == parts.hooks;
  }
  // The value has no form, no copy and no replay beside the bytes that forward computed.
  bool is_only_original() const { return form_ == nullptr && !is_held_privately() && !is_there(); }

  // The bytes for which the value counts. The caller knows that its Held is in the set `held` and its There in `there`;
  // an empty set means that this part does not count here. Where the sets are constants, the compiler leaves out the
  // questions that they answer.
  C10_ALWAYS_INLINE CountedBytes counted_bytes(uint8_t held, uint8_t there) const {
    const bool may_be_held = (held & ~set_of(Held::kNot)) != 0;
    const bool is_in_a_storage = (held & ~kInAStorage) == 0;
    CountedBytes counted;
    if (may_be_held && !is_in_a_storage && is_offloaded()) {
      counted.offloaded = bytes();
    } else if (may_be_held) {
      counted.saved = is_in_a_storage ? bytes() : held_bytes();
    }
    if (contains(there, There::kReplayed) && is_replayed()) {
      counted.recomputed = bytes();
    }
    return counted;
  }

  ValueParts parts;

 private:
  friend class ValueBytes;    // all that changes state_; original_, versions_, form_, was_let_go_
  friend class StorageIndex;  // is_foreign_, is_on_its_way_, was_let_go_, nbytes_, versions_, form_

  // The storage has other bytes from now on, or has died.
  void forget_original() { original_.reset(); }
  void set_form(ValueForm form) { form_ = std::make_unique<ValueForm>(std::move(form)); }
  void clear_form() { form_.reset(); }
  PackedForm* changeable_packed_form() { return std::get_if<PackedForm>(form_.get()); }
  OpaqueForm* changeable_opaque_form() { return std::get_if<OpaqueForm>(form_.get()); }

  ValueState state_;
  bool was_let_go_ = false;
  bool is_foreign_ = false;
  bool is_on_its_way_ = false;
  bool is_without_gradient_ = false;
  bool is_shared_ = false;
  uint32_t sample_ = 0;

  size_t nbytes_ = 0;

  WatchedVersions versions_;
  c10::weak_intrusive_ptr<c10::StorageImpl> original_;
  c10::StreamId stream_ = kNoStream;
  std::unique_ptr<ValueForm> form_;
  std::unique_ptr<std::string> name_;

  c10::Storage held_;    // while is_held_in_a_storage()
  c10::Storage there_;   // while is_there()
  at::Tensor replayed_;  // over `there_`
};

}  // namespace ac2::internal

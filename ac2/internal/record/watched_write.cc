#include "ac2/internal/record/watched_write.h"

#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/macros/Macros.h>

#include <algorithm>
#include <memory>

#include "ac2/internal/graph/part_storages.h"
#include "ac2/internal/libtorch/for_each_tensor.h"
#include "ac2/internal/libtorch/foreign_memory.h"
#include "ac2/internal/libtorch/tensor_meta.h"
#include "ac2/internal/libtorch/torch_compat.h"
#include "ac2/internal/record/aliases.h"
#include "ac2/internal/record/whole_writes.h"
#include "ac2/internal/region/region.h"
#include "ac2/internal/replay/replay_call.h"
#include "ac2/internal/tape/live_tapes.h"
#include "ac2/internal/tape/shared_storages.h"
#include "ac2/internal/tape/tape.h"
#include "ac2/internal/tape/whole_values.h"

namespace ac2::internal {

namespace {

// The kernel behind kRecordKey excludes the key while it sees to an op, and so does ac2 around ops of its own.
bool is_seen_to_here() {
  return c10::impl::tls_is_dispatch_key_excluded(kRecordKey);
}

// The tape that records the op itself.
const Tape* recording_tape() {
  return is_seen_to_here() ? ThreadRegions::here().innermost_tape() : nullptr;
}

// A value refers weakly to its storage. The program's order between its threads has the regions that took the storage
// before this write, so that the count has them, relaxed as it is.
bool is_known_to_a_tape(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->unsafe_storage().getWeakStorageImpl().weak_use_count() > 2;
}

void tell_closed_tapes(const at::Tensor& tensor, IsCounted is_counted) {
  for (const std::shared_ptr<Tape>& tape :
       tapes_sharing(tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl())) {
    const UnrecordedWrite write(*tape, tensor, is_counted);
  }
}

C10_NOINLINE void tell_open_tapes(const at::Tensor& tensor, IsCounted is_counted) {
  const Tape* here = recording_tape();
  if (open_tapes() == (here != nullptr ? 1 : 0)) {
    return;
  }
  for_each_open_tape([&](Tape& tape) {
    if (&tape != here) {
      const UnrecordedWrite write(tape, tensor, is_counted);
    }
  });
}

// Of a write to `tensor` itself, which no tensor over its parts counts, and which the region that records the op does
// not take for one to them.
C10_NOINLINE void tell_of_parts(const c10::TensorImpl& tensor) {
  for (const at::Tensor& part : part_tensors(tensor)) {
    if (part.defined() && part.has_storage() && is_known_to_a_tape(part)) {
      tell_closed_tapes(part, IsCounted::kNo);
      for_each_open_tape([&](Tape& tape) { const UnrecordedWrite write(tape, part, IsCounted::kNo); });
    }
  }
  if (are_there_whole_values()) {
    for (const c10::Storage& storage : part_storages(tensor)) {
      keep_whole_values_over(storage.unsafeGetStorageImpl());
    }
  }
}

}  // namespace

bool WatchedWrite::are_needed() {
  return is_any_tape_alive() && !is_replaying();
}

WatchedWrite::WatchedWrite(const OpFacts& facts, c10::ArrayRef<c10::IValue> arguments) : op_(facts.name.c_str()) {
  if (facts.written_only_if >= 0 && !arguments[facts.written_only_if].toBool()) {
    return;
  }
  if (facts.writes_metadata_only && (!facts.bumps_version_only || c10::InferenceMode::is_enabled())) {
    return;
  }
  for (const uint16_t i : facts.written) {
    const auto& unseen = facts.written_unseen;
    const bool is_counted = facts.counts_writes && std::find(unseen.begin(), unseen.end(), i) == unseen.end();
    for_each_tensor(arguments.slice(i, 1), [&](const at::Tensor& tensor) {
      if (!tensor.defined()) {
        return;
      }
      if (facts.writes_metadata_only) {
        note(tensor, nullptr);
      } else {
        tell_of(tensor, is_counted ? IsCounted::kYes : IsCounted::kNo);
      }
    });
  }
}

void WatchedWrite::tell_of(const at::Tensor& tensor, IsCounted is_counted) {
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  if (!has_plain_storage(impl)) {
    tell_of_parts(impl);
    return;
  }
  c10::StorageImpl* storage = impl.unsafe_storage().unsafeGetStorageImpl();
  note(tensor, storage);
  tell_tapes_of_write(tensor, is_counted);
}

void tell_tapes_of_write(const at::Tensor& tensor, IsCounted is_counted) {
  if (!tensor.unsafeGetTensorImpl()->unsafe_storage()) {
    return;
  }
  if (C10_UNLIKELY(may_change_unseen(tensor))) {
    tell_of_write_to_aliases(tensor, recording_tape());
  }
  if (is_known_to_a_tape(tensor)) {
    tell_closed_tapes(tensor, is_counted);
    tell_open_tapes(tensor, is_counted);
    if (C10_UNLIKELY(are_there_whole_values())) {
      keep_whole_values_over(tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl());
    }
  }
}

void tell_closed_tapes_of_write(const at::Tensor& tensor) {
  if (tensor.unsafeGetTensorImpl()->unsafe_storage() && is_known_to_a_tape(tensor)) {
    tell_closed_tapes(tensor, IsCounted::kNo);
  }
}

// A counter that only its tensor has is watched by no value.
void WatchedWrite::note(const at::Tensor& tensor, const c10::StorageImpl* storage) {
  const c10::VariableVersion& counter = counter_of(tensor);
  if (counter.enabled() && !counter.unique() && !is_seen_to_here()) {
    writes_.emplace_back(tensor, storage, op_);
  }
}

void WatchedWrite::ran() const {
  for (const SeenWrites::Write& write : writes_) {
    seen_writes().note(write);
  }
}

}  // namespace ac2::internal

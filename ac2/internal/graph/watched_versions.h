// The version counters that tell of writes to a value's bytes, and where each of them stood.
//
//   WatchedVersions versions;
//   versions.note(tensor);           // from here on, a write through `tensor` or a view of it shows
//   versions.note_also(other);       // the same for a tensor over the same storage with a counter of its own
//   if (versions.changed()) …        // something was written, or a tensor that was noted has been moved and written to
//   if (versions.changed(writes, storage)) …  // somebody has written to `storage` whom the region did not see
//
// A storage may be seen through tensors that do not share a counter (unsafe_chunk(), .data). The first one is noted in
// place, all others in a list that few values have.
//
// Threads: guarded by the tape's lock.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>
#include <c10/macros/Macros.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "ac2/internal/graph/seen_writes.h"
#include "ac2/internal/libtorch/torch_compat.h"

namespace ac2::internal {

class WatchedVersions {
 public:
  // A storage of many tensors costs no more per op than one of a few.
  static constexpr size_t kMostOthers = 64;

  struct Change {
    uint32_t found;
    uint32_t expected;
    const char* last_op;  // null if nobody has seen which op wrote
  };

  // Whether note() has been called. Before that nothing is watched.
  bool noted() const { return noted_; }
  void note(const at::Tensor& tensor) {
    noted_ = true;
    counter_ = counter_of(tensor);
    version_ = version_of(counter_);
    if (others_) {
      note_late();
    }
  }
  void note_also(const at::Tensor& tensor) {
    if (const c10::VariableVersion& counter = counter_of(tensor);
        !same_counter(counter, counter_) && counter.enabled()) {
      note_other(counter);
    }
  }
  // Notes those counters that were about to go up when they were found.
  void note_late();
  // Whether a write that this counter counts shows, or may be one that would show if there were not too many.
  bool watches(const c10::VariableVersion& counter) const {
    return (counter_.enabled() && same_counter(counter, counter_)) || has_other(counter) || some_unwatched_;
  }
  // Of the tensor that was noted first; disabled if nothing is watched.
  const c10::VariableVersion& counter() const { return counter_; }
  // Whether every change would show. False for inference tensors, which have no counter, and if the list of others was
  // full.
  bool are_complete() const { return noted_ && counter_.enabled() && !some_unwatched_; }

  C10_ALWAYS_INLINE bool changed() const {
    return (noted_ && counter_.enabled() && counter_.current_version() != version_) ||
           (others_ &&
            std::any_of(others_->begin(), others_->end(), [](const Other& other) { return other.changed(); }));
  }
  // The same, but for writes of the region's own ops to other storages than `storage`.
  bool changed(const SeenWrites& writes, const c10::StorageImpl* storage) const;
  // Takes the counters as they stand now for unchanged.
  void catch_up();
  // The change that the first counter tells of, and the op that has last written to `storage` by it.
  Change first_change(const SeenWrites& writes, const c10::StorageImpl* storage) const;

  // Forgets all counters. noted() stays true if it was.
  void release();

  // For the value that a write through `tensor` makes of a value with the versions `old`: the counters that watch the
  // other bytes of the storage go on doing so. The write itself counts up the counter of `tensor`, but only after the
  // op.
  void watch_after_write(const WatchedVersions& old, const at::Tensor& tensor);
  // For the value that a write makes if no counter is told of the write.
  void watch_as(const WatchedVersions& old);

 private:
  struct Other {
    c10::VariableVersion counter;
    uint32_t version = 0;
    bool noted = false;  // else `version` is yet to be set

    explicit Other(c10::VariableVersion counter) : counter(std::move(counter)) {}
    void note() {
      version = counter.current_version();
      noted = true;
    }
    bool changed() const { return noted && counter.current_version() != version; }
  };
  using Others = c10::SmallVector<Other, 2>;

  void note_other(const c10::VariableVersion& counter);
  bool has_other(const c10::VariableVersion& counter) const;

  c10::VariableVersion counter_;
  std::unique_ptr<Others> others_;
  uint32_t version_ = 0;
  bool noted_ = false;
  bool some_unwatched_ = false;  // others_ was full: a change may go unseen
};

}  // namespace ac2::internal

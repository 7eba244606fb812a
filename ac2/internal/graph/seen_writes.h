// Which storages the ops of regions have written through each version counter.
//
//   const SeenWrites::Write write(tensor, storage, "aten::add_");   // an op is about to write to `storage`
//   seen_writes().note(write);                                      // the op has written through `tensor`
//   if (seen_writes().are_elsewhere(counter, version, storage)) …   // nothing that `counter` counted was in `storage`
//
// A version counter belongs to a tensor and its views, and goes along when the tensor is given another storage (set_(),
// set_data()). The counter then counts writes to that storage, while values of the old one still watch it. To ask where
// the tensor lies now would not do. The tensor may have been written to before it moved, and another tensor with the
// same counter (detach()) may have stayed.
//
// Most writes are noted before they are counted, because ADInplaceOrView does so and ac2's kernel runs below it. Others
// are counted by the kernel (those of _foreach ops). A count that does not come, because the caller has left
// ADInplaceOrView out, is noticed with the counter's next write. A count that comes before its op (note_early())
// belongs to no storage until the op has run.
//
// All regions share one, because a later region moves tensors that an earlier one has read: a loop that carries its
// state by set_() may have a region a round.
//
// Not guaranteed: if more than kMostRuns storages were written to alternately through a counter, the older half of its
// writes is forgotten. A forgotten write counts as a write to any storage.
//
// Threads: safe. Its lock is taken below a tape's.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>
#include <c10/util/SmallVector.h>

#include <cstddef>
#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "ac2/internal/locks/mutex.h"

namespace ac2::internal {

class SeenWrites {
 public:
  static constexpr size_t kMostRuns = 4096;

  struct Write {
    at::Tensor through;
    const c10::StorageImpl* storage = nullptr;  // null if no byte is written
    uint32_t version = 0;                       // before the op
    const char* op;                             // its name, which is never freed

    Write(at::Tensor through, const c10::StorageImpl* storage, const char* op);
  };
  // The op has run. The counter has gone up for it, or is about to.
  void note(const Write& write);
  // The counter of `tensor` is about to go up for an op that will run next and be noted then.
  void note_early(const at::Tensor& tensor);
  // Whether all that `counter` has counted since `version` were writes to other storages than `storage`.
  bool are_elsewhere(const c10::VariableVersion& counter, uint32_t version, const c10::StorageImpl* storage) const;
  // The op that was last seen to write to `storage` and to be counted by `counter`. Null if none was.
  const char* last_op(const c10::VariableVersion& counter, const c10::StorageImpl* storage) const;

 private:
  friend SeenWrites& seen_writes();

  // Versions from `begin` to `end` - 1 were followed by a write to the same storage. A storage that has died, and whose
  // address another one has, is older than any version that a value of the other one watches.
  struct Run {
    const c10::StorageImpl* storage;
    uint32_t begin;
    uint32_t end;
    const char* op;  // the last of the run
    bool is_early;   // counted for an op that has not been noted yet
  };
  struct Counted {
    c10::VariableVersion counter;  // so that no other counter gets its address
    c10::SmallVector<Run, 1> runs;
  };
  void add(const Write& write, bool is_early);
  // Forgets the counters of which neither a tensor nor a value is left.
  void sweep() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  static constexpr size_t kLeastSwept = 64;

  mutable Mutex mutex_;
  absl::flat_hash_map<const void*, Counted> counted_ ABSL_GUARDED_BY(mutex_);
  size_t sweep_at_ ABSL_GUARDED_BY(mutex_) = kLeastSwept;
};

// The one of the process.
SeenWrites& seen_writes();

inline const c10::VariableVersion& counter_of(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->version_counter();
}

}  // namespace ac2::internal

// How far a tape has come with copying offloaded values back before backward wants them; see replay/read_ahead.h, which
// alone changes it.
//
// Threads: guarded by the tape's lock, but for `started`, which has a mutex of its own.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <deque>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "ac2/internal/graph/node.h"
#include "ac2/internal/locks/mutex.h"
#include "ac2/internal/offload/offloaded_value.h"

namespace ac2::internal {

struct ReadAheadState {
  using WeakOffloaded = c10::weak_intrusive_ptr<OffloadedValue>;

  bool begun = false;                     // the walk through the tape's hooks; HookList knows its place
  absl::flat_hash_set<const Node*> seen;  // ops that will be replayed, looked at already
  std::deque<WeakOffloaded> found;        // not started yet
  Mutex mutex;
  std::vector<WeakOffloaded> started ABSL_GUARDED_BY(mutex);  // by a run of this tape
};

}  // namespace ac2::internal

// What a backward will want next of what was offloaded, and copying it back before that.
//
// Autograd takes out what it saved last first, so the tape's list of hooks says what comes next: a value that was
// offloaded, or one that will be replayed from such values. Where a tape ends, that of the region opened before it goes
// on. The list is walked once in a backward, however long it is.
//
// Threads: all but run() and stop() need the tape's lock.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "ac2/internal/offload/offloaded_value.h"

namespace ac2::internal {

class SavedTensorHook;
class Tape;
struct Node;
struct Value;

class ReadAhead {
 public:
  // `previous` is the tape of the region that the thread opened before.
  explicit ReadAhead(std::weak_ptr<Tape> previous) : previous_(std::move(previous)) {}

  // A backward begins: all hooks are wanted again.
  void restart();
  // `hook` is about to leave the list.
  void forget(const SavedTensorHook* hook);

  // Without any lock: starts copies until `limit` bytes of the device are taken by what was not used yet.
  void run(Tape& tape, int64_t limit);
  // Without any lock: the backward is over. What it did not use is let go of.
  void stop();

 private:
  using WeakOffloaded = c10::weak_intrusive_ptr<OffloadedValue>;

  // The next one, or null at the end.
  c10::intrusive_ptr<OffloadedValue> next(Tape& tape);
  void find_below(const Value* value);

  const std::weak_ptr<Tape> previous_;
  bool begun_ = false;
  const SavedTensorHook* hook_ = nullptr;  // the next to look at
  absl::flat_hash_set<const Node*> seen_;  // ops that will be replayed, looked at already
  std::deque<WeakOffloaded> found_;        // not started yet
  std::mutex mutex_;                       // guards
  std::vector<WeakOffloaded> started_;     // by run() of this tape
};

}  // namespace ac2::internal

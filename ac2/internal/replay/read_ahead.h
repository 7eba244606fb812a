// Copies offloaded values back before backward wants them.
//
// Autograd takes out what it saved last first, so the tape's list of hooks says what comes next: a value that was
// offloaded, or one that will be replayed from such values. Where a tape ends, that of the region opened before it goes
// on. The list is walked once in a backward, however long it is.
//
// Threads: run() and stop() are called without any lock, from any thread.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "ac2/internal/offload/offloaded_value.h"
#include "ac2/internal/tape/hook_list.h"
#include "ac2/internal/tape/tape.h"

namespace ac2::internal {

class ReadAhead final : public HookListener {
 public:
  // A backward begins on the tape: all of its hooks are wanted again.
  static void restart(LockedTape& tape);
  // A hook of the tape has just been taken out: starts copies until values that were not used yet take as many bytes of
  // the device as the region's options allow.
  static void run(Tape& tape);
  // The backward is over on the tape. Values that were copied back for it and not used are dropped.
  static void stop(Tape& tape);

  void leaving(const TapeHook& hook) override;

 private:
  using WeakOffloaded = c10::weak_intrusive_ptr<OffloadedValue>;

  // The ReadAhead of the tape. The first call makes it.
  static ReadAhead& of(LockedTape& tape);

  // The next one, or null at the end.
  c10::intrusive_ptr<OffloadedValue> next(LockedTape& tape);
  void find_below(const Value* value);
  // Walks on in `tape`, which this belongs to, for the run of `runner`. False if there is no room for more.
  bool walk(Tape& tape, int64_t limit, ReadAhead& runner);

  bool begun_ = false;
  const TapeHook* hook_ = nullptr;         // the next to look at
  absl::flat_hash_set<const Node*> seen_;  // ops that will be replayed, looked at already
  std::deque<WeakOffloaded> found_;        // not started yet
  std::mutex mutex_;                       // guards
  std::vector<WeakOffloaded> started_;     // by run() of this tape
};

}  // namespace ac2::internal

// The needs of the backwards under way: pins on values, and the replays that these wait for.
//
// The first pin on a value makes it needed: its bytes are taken where they are, or its producer is marked as waited
// for, and the producer's inputs are pinned too. The last unpin undoes that. Every edge is walked once, so n ops
// cost O(n); nothing here recurses, so n may be a million.
//
// Threads: guarded by the tape's lock.
#pragma once

#include "ac2/internal/graph/node.h"
#include "ac2/internal/tape/value_bytes.h"

namespace ac2::internal {

class Pins {
 public:
  explicit Pins(ValueBytes& bytes) : bytes_(bytes) {}

  void pin(Value* value) { pin(value, /*original_goes=*/false); }
  void unpin(Value* value);
  // A pinned value has lost its bytes: its producer must run again, unless what forward computed is still there.
  // `original_goes` says that the original goes as soon as the lock is released.
  void need_again(Value* value, bool original_goes = false);
  // The node has been replayed and its pinned outputs are set: nothing waits for it, and it needs its inputs no more.
  void realized(Node* node);

 private:
  void pin(Value* root, bool original_goes);

  ValueBytes& bytes_;
};

}  // namespace ac2::internal

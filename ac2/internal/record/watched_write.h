// One op that writes, seen by the kernels of write_watch.h: tells the tapes that know what it writes to.
//
//   if (WatchedWrite::are_needed()) {
//     const WatchedWrite write(facts, arguments);
//     …run the op…
//     write.ran();
//   }
//
// Threads: concerns the thread that runs the op.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/SmallVector.h>

#include "ac2/internal/graph/seen_writes.h"
#include "ac2/internal/operators/op_facts.h"
#include "ac2/internal/record/unrecorded_write.h"

namespace ac2::internal {

class WatchedWrite {
 public:
  // Whether a tape may have to hear of what this thread writes now. A replay writes to what is its own.
  static bool are_needed();

  WatchedWrite(const OpFacts& facts, c10::ArrayRef<c10::IValue> arguments);
  // The op of that name, which is never freed, writes to `tensor` alone.
  WatchedWrite(const char* op, const at::Tensor& tensor) : op_(op) { tell_of(tensor, IsCounted::kYes); }
  WatchedWrite(const WatchedWrite&) = delete;
  WatchedWrite& operator=(const WatchedWrite&) = delete;

  // The op has written. ADInplaceOrView counts that next, or the op has done so itself.
  void ran() const;

 private:
  void tell_of(const at::Tensor& tensor, IsCounted is_counted);
  void note(const at::Tensor& tensor, const c10::StorageImpl* storage);

  const char* op_;
  c10::SmallVector<SeenWrites::Write, 1> writes_;
};

// Tells all tapes that know the storage of `tensor`, which has a plain one, that its bytes are about to change.
void tell_tapes_of_write(const at::Tensor& tensor, IsCounted is_counted);
// The same, but only those whose region is over, and of a write that is not counted.
void tell_closed_tapes_of_write(const at::Tensor& tensor);

}  // namespace ac2::internal

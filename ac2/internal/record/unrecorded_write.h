// Sees to a write that a tape does not record: after its region, in DisableCheckpointing, in another region, or on
// another thread.
//
//   UnrecordedWrite(tape, tensor, IsCounted::kYes);   // the storage of `tensor` is about to be written
//   …run the op…
//
// Gradients are those of plain autograd. An op that may be replayed has taken the bytes that stand there now: they
// are copied for it, if nothing else gives them back. A hook of autograd's stands for the storage, as a tensor that
// plain autograd has saved. Backward then ends with the error about an inplace operation if the write is counted by the
// version counter through which the tensor was saved, and reads the new bytes if it is not (`.data`). A hook on a value
// that can be computed again keeps the value instead, where the write is counted: that is no error, and the bytes are
// those of forward.
//
// Overwrites does this for the tape that records the op. It need not wait for replays, because the recording thread
// comes before the backwards that replay what it records.
//
// Threads: any.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>
#include <c10/util/intrusive_ptr.h>

#include "ac2/internal/offload/offloaded_value.h"
#include "ac2/internal/tape/tape.h"

namespace ac2::internal {

// Whether the version counter of the tensor is told of the write.
enum class IsCounted : bool { kNo, kYes };

class UnrecordedWrite {
 public:
  // `tensor` has a plain storage. Does nothing if the tape has no value there, or none that the write changes. Throws
  // if there is no memory for the copy: then nothing has changed.
  UnrecordedWrite(Tape& tape, const at::Tensor& tensor, IsCounted is_counted);
  UnrecordedWrite(const UnrecordedWrite&) = delete;
  UnrecordedWrite& operator=(const UnrecordedWrite&) = delete;

 private:
  // Null if there is nothing to do.
  Value* find(LockedTape& tape) const;
  // Whether hooks stand for the storage from now on, whatever is written there.
  bool hooks_follow(const Value& value) const;
  void make_copies();
  void commit(LockedTape& tape);

  Tape& tape_;
  const at::Tensor& tensor_;
  const IsCounted is_counted_;
  Value* value_ = nullptr;  // referenced, while the copies are made
};

}  // namespace ac2::internal

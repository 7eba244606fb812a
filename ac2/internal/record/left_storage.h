// The storage that a tensor is about to leave, because set_() or set_data() gives the tensor another one.
//
//   const LeftStorage left(tensor);
//   …the tensor is given another storage…
//   left.stop_watching(tape);
//
// The version counter goes along with the tensor, while the value in the old storage still watches the counter. Writes
// of ops are told apart by their storage (graph/seen_writes.h). But some counts come without an op: each mark_dirty()
// of a custom autograd function makes one. If nobody but the tape has the old storage any more, no write can come to
// it, and nothing needs to be watched. That is asked at once and at the end of the next op, because the temporaries of
// a statement such as `x.set_data(x.detach() * 0.5)` live on for a moment.
//
// Not guaranteed: where the program has another tensor in the old storage for longer, the value goes on watching, and a
// later count without an op is taken for a write to it. So it is with the values of other tapes.
//
// Threads: by the thread that moves the tensor.
#pragma once

#include <ATen/core/TensorBase.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/intrusive_ptr.h>

#include "ac2/internal/tape/tape.h"

namespace ac2::internal {

class LeftStorage {
 public:
  explicit LeftStorage(const at::TensorBase& tensor);

  // Does nothing if the tensor has stayed where it was, or has no plain storage.
  void stop_watching(Tape& tape) const;

 private:
  at::TensorBase tensor_;
  c10::weak_intrusive_ptr<c10::StorageImpl> storage_;
};

}  // namespace ac2::internal

// Packs a tensor so that the packed form has memory of its own, which no write to the tensor changes.
//
//   const c10::IValue packed = pack_apart(*form, tensor);
//
// A pack function may return the tensor that it was given, or a view of it: `t.cpu()` does, on the CPU. The program may
// write to that memory afterwards, and the tape's watch over writes takes a packed value for one that needs none. So a
// returned tensor whose memory is the given tensor's is replaced by a copy. Where an object of the program's hides the
// tensor, the copy cannot be put in its place, and pack is called again with a copy of the given tensor.
//
// Rejected: to hold the value by reference instead, because unpack might then not be called; to call pack again in any
// case, because pack functions count, write files, and are documented to run once.
//
// Threads: any. No lock may be held: pack runs the program's code.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include "ac2/form.h"

namespace ac2::internal {

// None if the form does not take the tensor. Throws what pack throws, and c10::Error if pack has written to the tensor.
//
// Of an object that hides its tensors (of Python's, a capsule, a dictionary) it is only known whether somebody has come
// to refer to the tensor while pack ran. Pack is called again then.
c10::IValue pack_apart(const Form& form, const at::Tensor& tensor);

}  // namespace ac2::internal

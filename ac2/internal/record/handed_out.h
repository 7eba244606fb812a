// A tensor is about to be handed out to code that no dispatcher sees: as a pointer, a DLPack capsule or a NumPy array.
//
//   before_unseen_write(tensor);
//   …Tensor.numpy()…
//
// Each function exposes the tensor (exposing.h). They differ in what is copied. All do nothing for a tensor without a
// plain storage, for one that no region knows, and inside of a DeclaredKernel.
//
// Threads: any.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

namespace ac2::internal {

// A pointer, which is used at once by most code, and by much of it to read. Nothing is copied. Rejected: to copy for
// each pointer what regions that are over may still read. A kernel of Triton asks for the pointers of all its
// arguments, and where several micro-batches wait for their backward, each of them would copy the weights.
void before_pointer(const at::Tensor& tensor);

// A DLPack capsule, which the other library may keep. Regions that are over copy what ops may still have to read there.
// Open regions copy nothing: most capsules are made for a kernel that reads, and what such a kernel is given would be
// copied in each forward.
void before_capsule(const at::Tensor& tensor);

// The bytes may change at any time from now on. All regions, open or over, copy what ops may still have to read there.
void before_unseen_write(const at::Tensor& tensor);
void before_unseen_write_to(const c10::Storage& storage);

}  // namespace ac2::internal

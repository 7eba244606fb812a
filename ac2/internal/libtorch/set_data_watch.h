// Tells of each tensor that is about to be given other data, by set_data() in C++ or by `.data =` in Python. Neither is
// an op, so the dispatcher does not see them.
//
//   watch_set_data([](const at::TensorBase& tensor) { … });   // once a process; later calls do nothing
//
// LibTorch hands what a tensor can do only with autograd to one table of virtual functions, at::impl::VariableHooks
// (ATen/core/VariableHooksInterface.h). A table of our own stands in front of it and passes every call on.
//
// Guarantees: `watch` runs before the data changes, on the thread that changes it, without a lock. An exception of
// `watch` reaches the program, and the tensor has its old data then.
// Not seen: data that LibTorch's own code exchanges by TensorImpl::shallow_copy_from(), and torch.utils.swap_tensors(),
// after which the two Python objects stand for each other's tensors.
//
// Threads: any. Other threads may use autograd while the table is put in front: LibTorch reads the pointer to it anew
// for each call.
#pragma once

#include <ATen/core/TensorBase.h>

namespace ac2::internal {

using SetDataWatch = void (*)(const at::TensorBase& tensor);
void watch_set_data(SetDataWatch watch);

}  // namespace ac2::internal

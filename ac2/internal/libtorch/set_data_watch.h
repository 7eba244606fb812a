// Tells of each tensor that is about to be given other data, by set_data() in C++ or by `.data =` in Python. Neither is
// an op, so the dispatcher does not see them.
//
//   watch_set_data([](const at::TensorBase& tensor, SetData set_data) {   // once a process; later calls do nothing
//     …
//     set_data();   // now the tensor has the other data
//     …
//   });
//
// LibTorch hands what a tensor can do only with autograd to one table of virtual functions, at::impl::VariableHooks
// (ATen/core/VariableHooksInterface.h). A table of our own stands in front of it and passes every call on.
//
// Guarantees: `watch` runs on the thread that changes the data, without a lock. The data changes in the call of
// set_data(), which may throw. An exception of `watch` reaches the program.
// Not seen: data that LibTorch's own code exchanges by TensorImpl::shallow_copy_from(), and torch.utils.swap_tensors(),
// after which the two Python objects stand for each other's tensors.
//
// Threads: any. Other threads may use autograd while the table is put in front: LibTorch reads the pointer to it anew
// for each call.
#pragma once

#include <ATen/core/TensorBase.h>
#include <c10/util/FunctionRef.h>

namespace ac2::internal {

using SetData = c10::function_ref<void()>;
using SetDataWatch = void (*)(const at::TensorBase& tensor, SetData set_data);
void watch_set_data(SetDataWatch watch);

}  // namespace ac2::internal

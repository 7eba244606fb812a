// Records a training step op by op, in the format of the prototype of Dynamic Tensor Rematerialization (dtr_trace.h).
//
//   const std::string trace =
//       record_step([&] { loss_of(model).backward(); }, [&] { model.zero_grad(); }, /*runs=*/5);
//
// The ops are those that reach a backend, of forward and backward; their times are measured, and of several runs the
// least counts. A tensor's bytes are those of its storage. A storage is released when the last tensor of it is gone.
// Tensors that exist before the step, such as parameters and inputs, are constants. What lives after the step, such as
// gradients, is alive at the end.
//
// Left out are ops that only make views, and what an op with other results writes beside them (the statistics of a
// batch norm). The library records at the same dispatch key: a process that records steps opens no region.
//
// Threads: one at a time, and ops of the calling thread alone. Backward on the CPU runs there.
#pragma once

#include <functional>
#include <string>

namespace ac2::benchmarks {

// After each run `clear` lets go of what the step has left behind. Throws std::runtime_error if the runs differ in
// their ops.
std::string record_step(const std::function<void()>& step, const std::function<void()>& clear, int runs);

}  // namespace ac2::benchmarks

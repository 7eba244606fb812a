// A call of a kernel that takes tensors past every dispatcher, and may write to any of them:
//
//   KernelCall call(arguments);    // before the kernel runs
//   …the kernel…
//   call.finish(results);          // it has returned, or thrown (then without results)
//
// The storages of all that the kernel takes and returns are exposed (exposing.h): what the kernel leaves there is held
// where backward needs it. What ops of regions, open or over, have read there before keeps its bytes: it is computed
// again from its own inputs, or, if no op of the region made it, copied. The copy is made before the kernel, and
// dropped after a kernel that has changed nothing there, as those that only read. So such a call costs the time of a
// copy, and no bytes.
//
// A tensor over memory that LibTorch did not allocate may lie over others (a DLPack capsule that came back). What ops
// may still have to read of those is copied before each call.
//
// Not guaranteed: a kernel that writes when its call is over, on a thread or stream of its own, is seen to change
// nothing.
//
// Inside of a DeclaredKernel a call does nothing: the function that makes it is an op, and says what it writes.
//
// Rejected: fingerprints before and after, so that what a kernel only reads need not be held: the kernel may write
// later, and both would have to wait for a device.
//
// Threads: by the thread that calls the kernel, outside of all ops.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "ac2/internal/offload/offloaded_value.h"
#include "ac2/internal/tape/tape.h"

namespace ac2::internal {

class KernelCall {
 public:
  // Tensors without a plain storage are left out.
  explicit KernelCall(c10::ArrayRef<at::Tensor> arguments);
  ~KernelCall();
  KernelCall(const KernelCall&) = delete;
  KernelCall& operator=(const KernelCall&) = delete;

  void finish(c10::ArrayRef<at::Tensor> results);

  // The bytes that regions hold because of the call: they would have been computed again.
  int64_t held_bytes() const { return held_bytes_; }

 private:
  // A value that its storage does not stand for any more if the kernel writes there.
  struct AtRisk {
    std::shared_ptr<Tape> tape;
    Value* value;  // referenced
    at::Tensor tensor;
    c10::intrusive_ptr<OffloadedValue> offloaded = {};  // null if it is not
    c10::Storage before = {};                           // its bytes before the kernel
  };

  KernelCall() = default;

  void expose_all(c10::ArrayRef<at::Tensor> tensors);
  void find_what_is_at_risk(c10::ArrayRef<at::Tensor> arguments);

  std::vector<AtRisk> at_risk_;
  int64_t held_bytes_ = 0;
};

}  // namespace ac2::internal

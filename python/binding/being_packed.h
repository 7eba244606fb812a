// The tensor that a pack function of Python's is given, while the function runs on this thread.
//
//   const BeingPacked being_packed(tensor);
//   form.attr("pack")(tensor);
//
// The function may read the tensor through a pointer, tensor.numpy() for one, and must neither keep it nor write to it.
// So such a pointer does not expose the value: the budget could not hold an exposed value in any form.
//
// Threads: any.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>

namespace ac2::python {

class BeingPacked {
 public:
  explicit BeingPacked(const at::Tensor& tensor)
      : before_(std::exchange(innermost_, tensor.storage().unsafeGetStorageImpl())) {}
  ~BeingPacked() { innermost_ = before_; }
  BeingPacked(const BeingPacked&) = delete;
  BeingPacked& operator=(const BeingPacked&) = delete;

  static bool is(const at::Tensor& tensor) {
    return innermost_ != nullptr && tensor.has_storage() && tensor.storage().unsafeGetStorageImpl() == innermost_;
  }

 private:
  static inline thread_local const c10::StorageImpl* innermost_ = nullptr;

  const c10::StorageImpl* const before_;
};

}  // namespace ac2::python

// A RowWatch finds in the ops of a chunk, and in the graph that they leave, what would not have the bits of one call.
//
//   RowWatch watch(slices, dim);
//   results = fn(slices);
//   watch.check(results, dim);   // throws
//
// Every op that the dispatcher runs on this thread is looked at (op_callbacks.h), in a region and outside of one.
// Kernels that take raw pointers are not seen, nor are numbers that the function reads from sizes.
//
// Threads: one; nests.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>
#include <c10/core/TensorImpl.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "ac2/internal/operators/op_callbacks.h"
#include "ac2/internal/operators/row_ops.h"

namespace ac2::internal {

class RowWatch {
 public:
  // The slices have two rows or more along `dim`.
  RowWatch(const std::vector<at::Tensor>& slices, int64_t dim);
  RowWatch(const RowWatch&) = delete;
  RowWatch& operator=(const RowWatch&) = delete;

  // Throws c10::Error that names the op, or the tensor whose gradient would be a sum, or the result.
  void check(const std::vector<at::Tensor>& results, int64_t dim) const;

 private:
  // Held weakly, which keeps the address from being used again.
  using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  struct Made {
    WeakTensor tensor;
    int64_t dim;
  };
  struct Call;

  static std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& call);
  static void end(const at::RecordFunction& call, at::ObserverContext* context);
  void note_call(const at::RecordFunction& call, Call& judged);
  void note_results(const at::RecordFunction& call, const Call& judged);
  void make(const at::Tensor& tensor, int64_t dim);
  void refuse(const std::string& why);
  void check_graph(const std::vector<at::Tensor>& results) const;

  const std::vector<at::Tensor>& slices_;
  int64_t rows_;
  std::unordered_map<const c10::TensorImpl*, Made> made_;  // by the ops so far, and the slices
  int inside_ = 0;                                         // of calls within a call that was looked at
  std::string refusal_;                                    // the first one
  const OpCallbacks<RowWatch> callbacks_;
};

}  // namespace ac2::internal

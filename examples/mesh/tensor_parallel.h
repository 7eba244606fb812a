// The exchanges of a layer that is split over the processes of a tensor group, as functions of autograd.
//
//   at::Tensor whole = enter_parallel(x, group);                    // each process multiplies it by its own columns
//   at::Tensor y = leave_parallel(at::linear(…, rows), group);      // the sum of what the processes have
//
// As in Megatron-LM (arXiv 1909.08053): two products, of which the first is split by columns and the second by rows,
// need one all-reduce in forward and one in backward. With TensorGroup::sequence each process has, outside of such
// pairs, its part of the sequence alone (arXiv 2205.05198): an all-gather and a reduce-scatter take the place of an
// all-reduce.
//
// Activations are [time, batch, channels].
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "examples/mesh/communicator.h"

namespace gpt {

struct TensorGroup {
  Communicator* communicator = nullptr;
  bool sequence = false;

  int64_t size() const { return communicator->size(); }
  int64_t rank() const { return communicator->rank(); }
};

at::Tensor enter_parallel(const at::Tensor& x, const TensorGroup& group);
at::Tensor leave_parallel(const at::Tensor& x, const TensorGroup& group);

// The rows of `table` for `tokens` [time, batch], where each process has a part of the rows.
at::Tensor parallel_embedding(const at::Tensor& table, const at::Tensor& tokens, const TensorGroup& group);

// The mean cross entropy of logits [time, batch, words], where each process has a part of the words.
at::Tensor parallel_cross_entropy(const at::Tensor& logits, const at::Tensor& targets, const TensorGroup& group);

}  // namespace gpt

// The cross entropy of a linear layer's results, such as the logits of a large vocabulary, of which a few rows are
// there at a time.
//
//   at::Tensor loss = ac2::linear_cross_entropy(hidden, vocabulary, target);
//   // as at::cross_entropy_loss(at::linear(hidden, vocabulary), target)
//
// Forward makes the logits of a few rows, their loss and its gradients, and lets go of these logits. Backward scales
// the gradients. So all logits together are never there, the logits of a row are made once, and backward makes none.
// Between the two the gradients of what requires one are held: as many bytes as these tensors take, and twice as many
// of a weight in half precision, whose gradient is added up in float. in_chunks() with the same function holds less,
// takes longer, and has second derivatives; neither has forward-mode derivatives. A write to a tensor between forward
// and backward changes nothing, and is no error.
//
// Inside a region the gradients are held too, whatever policies say, and nothing of this is computed again.
//
// Bits: sums over rows, and so the loss and the gradients of the weight and the bias, differ from plain ones by the
// order of additions. The gradient of a mean is divided by the count last, where plain autograd divides first.
//
// Method: P.-L. Hsu et al., "Liger Kernel: Efficient Triton Kernels for LLM Training", 2024, and
// torch.nn.functional.linear_cross_entropy of PyTorch 2.15.
//
// Threads: any.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>

namespace ac2 {

struct LinearCrossEntropyOptions {
  at::Tensor bias = {};                // [classes]
  at::Tensor class_weights = {};       // [classes]; no gradient goes there
  std::string reduction = "mean";      // over the rows that are not ignored; or "sum"
  int64_t ignore_index = -100;         // a target that does not count
  double label_smoothing = 0;          // from 0 to 1
  std::optional<int64_t> chunks = {};  // unset: of as many rows as a row of `input` has numbers, at least 64
};

// `input` is [..., features], `weight` [classes, features], and `target` [...] class indices (int64). Returns a scalar.
// Throws c10::Error for other types and shapes, for options out of their range, and in a backward with create_graph.
at::Tensor linear_cross_entropy(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& target,
                                const LinearCrossEntropyOptions& options = {});

}  // namespace ac2

// Gradients of a half precision that come from many parts of a graph and are added up in float.
//
//   SumsInFloat sums;
//   for (…) {
//     const uint64_t begin = SumsInFloat::now();
//     const std::vector<at::Tensor> results = fn(slices);
//     sums.add_part(results, begin, slices);
//   }
//
// Autograd adds up the gradients that a node gets in their own type. A sum of hundreds of numbers in bfloat16, one
// after the other, comes to a stand where the next one is less than half of its last digit. So between the parts and
// each node that all of them share a node is put whose gradient is float. Autograd's engine casts to that type what it
// adds up there, and the node casts the sum back. Rejected: a copy of the shared tensor in float, of which each part
// takes a cast. That copy would be there from forward on, and a function's weights are not known before it has run.
//
// Hooks of the shared tensors run once, as without.
//
// Not covered: gradients of tensor subclasses, nested tensors, and backward by torch._dynamo's compiled autograd, which
// cannot compile the node.
//
// Threads: one at a time, the same for all parts.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "ac2/internal/libtorch/autograd_node.h"

namespace ac2::internal {

// The type in which numbers of `type` are added up: float for a half precision, else `type`.
inline at::ScalarType type_of_sums(at::ScalarType type) {
  return type == at::kHalf || type == at::kBFloat16 ? at::kFloat : type;
}

class SumsInFloat {
 public:
  // Nodes that this thread makes from now on have this number or a larger one.
  static uint64_t now();

  // `results` were computed since `begin`, from `own` tensors, which no other part has, and from what all parts share.
  void add_part(const std::vector<at::Tensor>& results, uint64_t begin, const std::vector<at::Tensor>& own);

 private:
  // The edge in place of one to a shared node.
  torch::autograd::Edge summed(const torch::autograd::Edge& shared);

  std::map<std::pair<torch::autograd::Node*, uint32_t>, NodePointer> sums_;
};

}  // namespace ac2::internal

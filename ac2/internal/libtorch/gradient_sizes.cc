#include "ac2/internal/libtorch/gradient_sizes.h"

#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/input_metadata.h>

#include <algorithm>

namespace ac2::internal {

namespace {

int64_t bytes_of_gradient(const torch::autograd::Node& node, uint32_t input) {
  if (input >= node.num_inputs() || node.input_metadata(input).is_nested_tensor()) {
    return 0;
  }
  const torch::autograd::InputMetadata& metadata = node.input_metadata(input);
  auto bytes = static_cast<int64_t>(metadata.dtype().itemsize());
  for (const c10::SymInt& size : metadata.shape_as_dim_vector()) {
    bytes *= size.maybe_as_int().value_or(0);
  }
  return bytes;
}

}  // namespace

int64_t bytes_of_largest_gradient() {
  const auto node = torch::autograd::get_current_node();
  if (node == nullptr) {
    return 0;
  }
  int64_t largest = 0;
  for (uint32_t i = 0; i < node->num_inputs(); ++i) {
    largest = std::max(largest, bytes_of_gradient(*node, i));
  }
  for (const torch::autograd::Edge& edge : node->next_edges()) {
    if (edge.function != nullptr) {
      largest = std::max(largest, bytes_of_gradient(*edge.function, edge.input_nr));
    }
  }
  return largest;
}

}  // namespace ac2::internal

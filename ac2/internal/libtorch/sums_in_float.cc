#include "ac2/internal/libtorch/sums_in_float.h"

#include <ATen/SequenceNumber.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>

#include "absl/container/flat_hash_set.h"

namespace ac2::internal {

namespace {

// As `of`, for gradients of another type. No tensor is made for it, which modes and regions would see.
template <class Metadata = torch::autograd::InputMetadata>
Metadata with_type(const Metadata& of, at::ScalarType type) {
  const at::TensorOptions options = of.options().dtype(type);
  const c10::SymIntArrayRef sizes = of.shape_as_dim_vector();
  torch::autograd::MetadataShape shape = torch::autograd::SymIntSmallVec(sizes.begin(), sizes.end());
  // From 2.10 on the type to which the engine casts is apart from that of the tensor.
  if constexpr (requires { of.grad_dtype(); }) {
    return {options, std::move(shape), /*is_tensor_subclass=*/false, /*is_nested=*/false, type};
  } else {
    return {options, std::move(shape), /*is_tensor_subclass=*/false, /*is_nested=*/false};
  }
}

class CastBack final : public torch::autograd::Node {
 public:
  CastBack(torch::autograd::Edge to, const torch::autograd::InputMetadata& metadata)
      : type_(c10::typeMetaToScalarType(metadata.dtype())) {
    add_next_edge(std::move(to));
    input_metadata_.emplace_back(with_type(metadata, type_of_sums(type_)));
  }

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    return {gradients[0].defined() ? gradients[0].to(type_) : at::Tensor()};
  }

 private:
  const at::ScalarType type_;
};

// False where the program has the gradients of a leaf in another type.
template <class Metadata>
bool adds_up_in_half(const Metadata& metadata) {
  at::ScalarType type = c10::typeMetaToScalarType(metadata.dtype());
  if (type_of_sums(type) == type || metadata.is_tensor_subclass() || metadata.is_nested_tensor()) {
    return false;
  }
  if constexpr (requires { metadata.grad_dtype(); }) {
    type = metadata.grad_dtype().value_or(type);
  }
  return type_of_sums(type) != type;
}

}  // namespace

uint64_t SumsInFloat::now() {
  return at::sequence_number::peek();
}

torch::autograd::Edge SumsInFloat::summed(const torch::autograd::Edge& shared) {
  NodePointer& sum = sums_[{shared.function.get(), shared.input_nr}];
  if (!sum) {
    sum = owned_node(new CastBack(shared, shared.function->input_metadata(shared.input_nr)));
  }
  return torch::autograd::Edge(sum, 0);
}

void SumsInFloat::add_part(const std::vector<at::Tensor>& results, uint64_t begin, const std::vector<at::Tensor>& own) {
  absl::flat_hash_set<const torch::autograd::Node*> seen;
  for (const at::Tensor& tensor : own) {
    seen.insert(torch::autograd::impl::gradient_edge(tensor).function.get());
  }
  std::vector<torch::autograd::Node*> work;
  const auto is_of_part = [&](torch::autograd::Node& node) {
    return node.sequence_nr() >= begin && dynamic_cast<torch::autograd::AccumulateGrad*>(&node) == nullptr;
  };
  const auto visit = [&](torch::autograd::Node* node) {
    if (node != nullptr && is_of_part(*node) && seen.insert(node).second) {
      work.push_back(node);
    }
  };
  for (const at::Tensor& result : results) {
    if (result.defined()) {
      visit(result.grad_fn().get());
    }
  }
  while (!work.empty()) {
    torch::autograd::Node& node = *work.back();
    work.pop_back();
    for (torch::autograd::Edge& edge : node.next_edges()) {
      if (!edge.is_valid() || seen.contains(edge.function.get())) {
        continue;
      }
      if (is_of_part(*edge.function)) {
        visit(edge.function.get());
      } else if (adds_up_in_half(edge.function->input_metadata(edge.input_nr))) {
        // Not by set_next_edge(), which no node takes that has a parent. The new node lies where the old one did in the
        // order that LibTorch keeps of a graph's depth.
        edge = summed(edge);
      }
    }
  }
}

}  // namespace ac2::internal

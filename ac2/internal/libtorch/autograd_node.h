// Nodes of autograd's graph that we make. LibTorch counts references to its nodes in one of two ways, by its version.
//
//   const NodePointer node = owned_node(new MyNode(…));
#pragma once

#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>

namespace ac2::internal {

using NodePointer = decltype(torch::autograd::Edge::function);

template <class Pointer = NodePointer>
Pointer owned_node(torch::autograd::Node* node) {
  if constexpr (requires { Pointer::unsafe_steal_from_new(node); }) {
    return Pointer::unsafe_steal_from_new(node);
  } else {
    return Pointer(node, [](auto* dead) { deleteNode(dead); });
  }
}

}  // namespace ac2::internal

#include "examples/mesh/backward_later.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>

namespace gpt {

BackwardLater::BackwardLater(const at::Tensor& output)
    : end_(torch::autograd::impl::gradient_edge(output)), sizes_(output.sizes().vec()), options_(output.options()) {}

void BackwardLater::run(at::Tensor gradient) const {
  torch::autograd::Engine::get_default_engine().execute({end_}, {std::move(gradient)}, /*keep_graph=*/false,
                                                        /*create_graph=*/false, /*accumulate_grad=*/true);
}

}  // namespace gpt

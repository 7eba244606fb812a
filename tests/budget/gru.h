// A recurrent network, in which a replay that drops too much doubles the replays with each step.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <tuple>
#include <vector>

#include "tests/support/regions.h"

namespace ac2::test {

// One layer. Its input and weights require gradients.
struct Gru {
  Gru(int64_t steps, int64_t batch, int64_t inputs, int64_t width)
      : x(sample({steps, batch, inputs})),
        hidden(at::zeros({1, batch, width})),
        weights({sample({3 * width, inputs}), sample({3 * width, width}), sample({3 * width}), sample({3 * width})}) {}

  at::Tensor forward() const {
    return std::get<0>(at::gru(x, hidden, weights, /*has_biases=*/true, /*num_layers=*/1, /*dropout=*/0, /*train=*/true,
                               /*bidirectional=*/false, /*batch_first=*/false))
        .square()
        .sum();
  }
  std::vector<at::Tensor> leaves() const {
    std::vector<at::Tensor> all = weights;
    all.push_back(x);
    return all;
  }

  at::Tensor x;
  at::Tensor hidden;
  std::vector<at::Tensor> weights;
};

}  // namespace ac2::test

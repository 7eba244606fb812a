// The models that compare_peers trains, written once here and once, op for op the same, in ../peers/networks.py.
//
//   auto network = peers::make_network("gpt", peers::Size::kFull);
//   at::Tensor loss = network->forward(network->input(), region).sum();
//
// Parameters and inputs follow a formula, so that both languages have the same bits without a file or a generator.
//
// Threads: as torch::nn::Module, one at a time.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace peers {

using Tensors = std::vector<at::Tensor>;

// Runs one part of a model, checkpointed or not, and returns what the part returns. A part takes its inputs from where
// it is written.
using Region = std::function<Tensors(const std::function<Tensors()>& part)>;

// No checkpointing.
Tensors run_plain(const std::function<Tensors()>& part);

class Network : public torch::nn::Module {
 public:
  // Of one step, made by the formula; requires no gradient.
  virtual at::Tensor input() const = 0;
  // Every part goes through `region`; its results are what the loss is the sum of.
  virtual at::Tensor forward(const at::Tensor& x, const Region& region) = 0;
};

enum class Size {
  kFull,  // what is measured
  kTiny,  // the same ops on a few numbers, for tests
};

// In the order of the tables.
const std::vector<std::string>& network_names();

// Throws c10::Error that lists the names if `name` is not one of them.
std::shared_ptr<Network> make_network(const std::string& name, Size size);

// "lstm" or "lstm_cells" over a sequence of so many chunks. A chunk has 16 time steps, or 3 if tiny. Throws c10::Error
// for another name, and if `chunks` is not positive.
std::shared_ptr<Network> make_recurrent_network(const std::string& name, Size size, int64_t chunks);

// sin(0.37 i² + seed) for the i-th of `sizes`' elements in double, times `scale`, plus `offset`, as float. The square
// keeps matrices from having rank 2.
at::Tensor by_formula(at::IntArrayRef sizes, double seed, double scale, double offset = 0);

}  // namespace peers

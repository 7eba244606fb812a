// The same training step in several ways, side by side: what each holds, how long it takes, and whether its gradients
// are bitwise those of the first.
//
//   std::vector<example::Variant> variants = {
//       {"none", plain, [=] { return plain->forward(x).sum(); }},
//       {"checkpointed", wrapped, [=] { return wrapped->forward(x).sum(); }}};
//   return example::print(std::cout, example::run(variants, 10)) ? EXIT_SUCCESS : EXIT_FAILURE;
//
// Threads: one; LibTorch's default generator and the byte counter are the process's.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

namespace example {

struct Variant {
  std::string name;
  // Its own, with the parameters and buffers that the other variants' models have at the start.
  std::shared_ptr<torch::nn::Module> model;
  std::function<at::Tensor()> loss;
  // After each step, untimed: an optimizer's step. None: the parameters stay as they are.
  std::function<void()> update = {};
};

struct Measured {
  std::string name;
  double seconds = 0;           // median of a forward and a backward
  int64_t held_bytes = 0;       // by forward for backward, the loss included; the most of any step
  int64_t peak_bytes = 0;       // of forward and backward, besides the models
  std::vector<float> losses;    // of each step
  bool same_gradients = false;  // as the first variant's, in every step
  bool same_buffers = false;    // at the end: BatchNorm's statistics
};

// `steps` steps of each, in turn. Each step draws the same random numbers in every variant. The first is not timed, if
// there are more. Throws c10::Error if `steps` is less than 1.
std::vector<Measured> run(const std::vector<Variant>& variants, int64_t steps);

// A table and a verdict. True if all are the same.
bool print(std::ostream& out, const std::vector<Measured>& measured);

// main() of an example: `make(small)` makes the variants. Arguments: --steps=N (10), --small.
int run_main(int argc, char** argv, const std::function<std::vector<Variant>(bool small)>& make);

}  // namespace example

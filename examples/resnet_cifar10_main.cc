// Trains ResNet-50 on CIFAR-10 with and without recomputation, side by side.
//
//   resnet_cifar10                                         a small set made for it, several choices
//   resnet_cifar10 --data=cifar-10-batches-bin             the real one (its binary version)
//   resnet_cifar10 --recompute=layer1,layer2               these two layers, each one region
//   resnet_cifar10 --recompute='layer*.*'                  every residual block a region of its own
//   resnet_cifar10 --recompute='layer*' --ops=aten::relu,aten::native_batch_norm
#include <absl/flags/declare.h>
#include <absl/flags/flag.h>
#include <absl/flags/parse.h>
#include <absl/flags/usage.h>
#include <c10/util/Exception.h>

#include <cstdlib>
#include <exception>
#include <iostream>
#include <string>
#include <vector>

#include "ac2/testing/counting_allocator.h"
#include "examples/passive_threads.h"
#include "examples/resnet_cifar10.h"
#include "examples/table.h"

ABSL_DECLARE_FLAG(int64_t, steps);
ABSL_DECLARE_FLAG(bool, small);
ABSL_FLAG(
    std::string, data, "",
    "a file of CIFAR-10's binary version, or the directory with data_batch_*.bin; default: a small set made for it");
ABSL_FLAG(int64_t, batch, 16, "pictures per step");
ABSL_FLAG(double, lr, 0.01, "learning rate");
ABSL_FLAG(std::vector<std::string>, recompute, {},
          "layers (layer1 to layer4) and blocks (layer1.0, layer*.*) to recompute; default: several choices in turn");
ABSL_FLAG(std::vector<std::string>, ops, {},
          "ops to recompute in them; default: all but the one that makes the output");

namespace {

int run() {
  // Before the models, so that they are counted on both sides of every difference.
  ac2::testing::CountingAllocator::install();
  const auto variants = example::resnet_cifar10({.small = absl::GetFlag(FLAGS_small),
                                                 .data = absl::GetFlag(FLAGS_data),
                                                 .batch = absl::GetFlag(FLAGS_batch),
                                                 .learning_rate = absl::GetFlag(FLAGS_lr),
                                                 .recompute = absl::GetFlag(FLAGS_recompute),
                                                 .ops = absl::GetFlag(FLAGS_ops)});
  const std::vector<example::Measured> measured = example::run(variants, absl::GetFlag(FLAGS_steps));
  const std::vector<float>& losses = measured.front().losses;
  std::cout << "Loss " << gpt::fixed(losses.front(), 3) << " in the first step, " << gpt::fixed(losses.back(), 3)
            << " in the last (" << losses.size() << ").\n\n";
  return example::print(std::cout, measured) ? EXIT_SUCCESS : EXIT_FAILURE;
}

}  // namespace

int main(int argc, char** argv) {
  gpt::use_passive_threads(argv);
  absl::SetProgramUsageMessage("Trains ResNet-50 on CIFAR-10 with and without recomputation.");
  const auto arguments = absl::ParseCommandLine(argc, argv);
  if (arguments.size() > 1) {
    std::cerr << "resnet_cifar10: unexpected argument \"" << arguments[1] << "\"; flags are written --name=value.\n";
    return EXIT_FAILURE;
  }
  try {
    return run();
  } catch (const c10::Error& error) {
    std::cerr << "resnet_cifar10: " << error.what_without_backtrace() << '\n';
  } catch (const std::exception& error) {
    std::cerr << "resnet_cifar10: " << error.what() << '\n';
  }
  return EXIT_FAILURE;
}

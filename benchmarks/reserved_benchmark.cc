// Simulates LibTorch's caching allocator for CUDA with the allocations that training steps make on the CPU, and prints
// how many bytes it would reserve.
//
//   reserved_benchmark                                       all models, the forms below; minutes
//   reserved_benchmark --models=gpt,lstm --forms=none,recompute_all,recompute_all@step,40MiB@step
//
// A form is "none", a policy or a memory budget (as in peer_models), with a region around each part of the model, or
// around each step with "@step". Printed for each, at most, in MiB: what tensors requested, parameters and gradients
// included; what their blocks took; what was reserved; and what was reserved with expandable_segments. Steps follow one
// another as in training, gradients are set to none between them, and there is no optimizer. Kernels of CUDA take other
// memory of their own than those of the CPU.
//
// Exit status: 0, or 1 for a wrong command line.
#include <absl/flags/flag.h>
#include <absl/flags/parse.h>
#include <absl/flags/usage.h>
#include <absl/strings/str_join.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "benchmarks/caching/allocation_recorder.h"
#include "benchmarks/networks/image_networks.h"
#include "benchmarks/networks/networks.h"
#include "examples/checkpointing.h"
#include "examples/table.h"

ABSL_FLAG(std::vector<std::string>, models,
          std::vector<std::string>({"gpt", "resnet50", "mobilenet_v2", "densenet121", "lstm"}),
          "of networks/networks.h and networks/image_networks.h");
ABSL_FLAG(std::vector<std::string>, forms,
          std::vector<std::string>({"none", "recompute_all", "save_compute_intensive", "recompute_all@step",
                                    "100MiB@step"}),
          "none, policies and memory budgets; NAME@step: one region around the step");
ABSL_FLAG(int64_t, steps, 3, "training steps");
ABSL_FLAG(int64_t, threads, 1, "threads of LibTorch");
ABSL_FLAG(bool, tiny, false, "the same ops on a few numbers");

namespace {

using ac2::benchmarks::AllocationEvents;
using ac2::benchmarks::AllocationRecorder;

std::shared_ptr<peers::Network> make_network(const std::string& name) {
  const peers::Size size = absl::GetFlag(FLAGS_tiny) ? peers::Size::kTiny : peers::Size::kFull;
  const std::vector<std::string>&images = peers::image_network_names(), &others = peers::network_names();
  if (std::find(images.begin(), images.end(), name) != images.end()) return peers::make_image_network(name, size);
  TORCH_CHECK(std::find(others.begin(), others.end(), name) != others.end(), "Unknown model \"", name,
              "\". Choose one of: ", absl::StrJoin(others, ", "), ", ", absl::StrJoin(images, ", "), ".");
  return peers::make_network(name, size);
}

gpt::Checkpointing form_by_name(const std::string& name) {
  const size_t at = name.find('@');
  gpt::Checkpointing form = gpt::checkpointing_by_name(name.substr(0, at));
  form.span = at == std::string::npos ? gpt::RegionSpan::kBlock : gpt::span_by_name(name.substr(at + 1));
  TORCH_CHECK(form.span != gpt::RegionSpan::kLoop, "A form has a region around each block or each step, not \"", name,
              "\".");
  return form;
}

at::Tensor loss_of(peers::Network& network, const at::Tensor& input, const gpt::Checkpointing& form) {
  if (form.span == gpt::RegionSpan::kBlock) {
    return network
        .forward(input, [&](const std::function<peers::Tensors()>& part) { return gpt::checkpointed(form, part); })
        .sum();
  }
  return gpt::checkpointed(form, [&] { return network.forward(input, peers::run_plain).sum(); });
}

AllocationEvents events_of(peers::Network& network, const gpt::Checkpointing& form) {
  const at::Tensor input = network.input();
  network.zero_grad(/*set_to_none=*/true);
  return AllocationRecorder::install().during([&] {
    for (int64_t step = 0; step < absl::GetFlag(FLAGS_steps); ++step) {
      network.zero_grad(/*set_to_none=*/true);
      loss_of(network, input.clone().requires_grad_(), form).backward();
    }
  });
}

std::string mebibytes(int64_t bytes) {
  return gpt::fixed(static_cast<double>(bytes) / (1 << 20), 1);
}

void run() {
  TORCH_CHECK(absl::GetFlag(FLAGS_steps) > 0, "steps is ", absl::GetFlag(FLAGS_steps), "; it must be at least 1.");
  TORCH_CHECK(absl::GetFlag(FLAGS_threads) > 0, "threads is ", absl::GetFlag(FLAGS_threads),
              "; it must be at least 1.");
  at::set_num_threads(static_cast<int>(absl::GetFlag(FLAGS_threads)));
  AllocationRecorder::install();
  std::vector<std::vector<std::string>> rows;
  for (const std::string& model : absl::GetFlag(FLAGS_models)) {
    const auto network = make_network(model);
    for (const std::string& name : absl::GetFlag(FLAGS_forms)) {
      const AllocationEvents events = events_of(*network, form_by_name(name));
      const auto fixed = ac2::benchmarks::reserved_for(events, {});
      const auto expandable = ac2::benchmarks::reserved_for(events, {.expandable_segments = true});
      rows.push_back({model, name, mebibytes(fixed.requested_bytes), mebibytes(fixed.allocated_bytes),
                      mebibytes(fixed.reserved_bytes), mebibytes(expandable.reserved_bytes)});
    }
  }
  gpt::print_table(std::cout, {"model", "form", "requested", "in use", "reserved", "expandable"}, rows);
}

}  // namespace

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("What CUDA's caching allocator would reserve for training steps, in MiB.");
  absl::ParseCommandLine(argc, argv);
  try {
    run();
  } catch (const c10::Error& error) {
    std::cerr << "reserved_benchmark: " << error.what_without_backtrace() << '\n';
    return EXIT_FAILURE;
  }
  return EXIT_SUCCESS;
}

// Records a training step of one of the project's models for budget_simulator.
//
//   record_step --model=gpt > gpt.log
//   budget_simulator gpt.log --budget 0.5,0.3,0.15 --compare_rules --repeat 5
//
//   record_step --model=lstm_cells --chunks=180 --runs=1 > long.log      # about 100,000 ops
//
// The step is forward and backward, without an optimizer, on one thread. step_recorder.h says what the trace has.
//
// Exit status: 0, or 1 for a wrong command line.
#include <absl/flags/flag.h>
#include <absl/flags/parse.h>
#include <absl/flags/usage.h>
#include <absl/strings/str_join.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "benchmarks/networks/branching_networks.h"
#include "benchmarks/networks/image_networks.h"
#include "benchmarks/networks/networks.h"
#include "benchmarks/step_recorder.h"

ABSL_FLAG(std::string, model, "gpt", "of the headers in networks/");
ABSL_FLAG(int, chunks, 0, "of lstm and lstm_cells, each of 16 time steps, or 3 if tiny; 0 for the model's own number");
ABSL_FLAG(int, runs, 7, "how often the step runs; the least time of each op counts");
ABSL_FLAG(bool, tiny, false, "the same ops on a few numbers");

namespace {

bool is_among(const std::string& name, const std::vector<std::string>& names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::shared_ptr<peers::Network> any_network(const std::string& name, peers::Size size, int chunks) {
  if (chunks != 0) return peers::make_recurrent_network(name, size, chunks);
  if (is_among(name, peers::image_network_names())) return peers::make_image_network(name, size);
  if (is_among(name, peers::branching_network_names())) return peers::make_branching_network(name, size);
  TORCH_CHECK(is_among(name, peers::network_names()), "Unknown model \"", name,
              "\". Choose one of: ", absl::StrJoin(peers::network_names(), ", "), ", ",
              absl::StrJoin(peers::image_network_names(), ", "), ", ",
              absl::StrJoin(peers::branching_network_names(), ", "), ".");
  return peers::make_network(name, size);
}

void run() {
  TORCH_CHECK(absl::GetFlag(FLAGS_runs) > 0, "--runs must be positive");
  const peers::Size size = absl::GetFlag(FLAGS_tiny) ? peers::Size::kTiny : peers::Size::kFull;
  at::set_num_threads(1);
  torch::manual_seed(1);
  const auto network = any_network(absl::GetFlag(FLAGS_model), size, absl::GetFlag(FLAGS_chunks));
  const at::Tensor input = network->input();
  const auto step = [&] { network->forward(input, peers::run_plain).sum().backward(); };
  const auto zero = [&] { network->zero_grad(/*set_to_none=*/true); };
  std::cout << ac2::benchmarks::record_step(step, zero, absl::GetFlag(FLAGS_runs));
}

}  // namespace

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("records a training step for budget_simulator\n\n  record_step --model=gpt > gpt.log");
  try {
    const std::vector<char*> arguments = absl::ParseCommandLine(argc, argv);
    TORCH_CHECK(arguments.size() == 1, "record_step takes no arguments, only flags: see --help");
    run();
  } catch (const c10::Error& error) {
    std::cerr << "record_step: " << error.what_without_backtrace() << "\n";
    return EXIT_FAILURE;
  }
  return EXIT_SUCCESS;
}

// The C++ side of compare_peers: trains the models of peers/networks.h as it is told, a request a line on the standard
// input, an answer a line on the standard output, until the input ends.
//
//   $ bazel-bin/benchmarks/peer_models --tiny
//   {"do": "describe"}
//   {"models": {"chain": [[8]], ...}, "forms": ["none", "recompute_all", ...], "saved_ops": ["aten::mm", ...], ...}
//   {"do": "step", "model": "gpt", "form": "recompute_all"}
//   {"backward_peak_bytes": ..., "cpu_seconds": ..., "forward_peak_bytes": ..., "held_bytes": ..., "seconds": ...}
//   {"do": "count", "model": "gpt", "form": "recompute_all"}
//   {"replayed_ops": 28}
//   {"do": "gradients", "model": "gpt", "form": "recompute_all", "file": "gradients.bin"}
//   {"bytes": 12345}
//
// A form is "none", a policy's name, or a memory budget. The file gets all parameters' gradients after one step, as
// they lie in memory, one after another. A request that fails is answered {"error": "..."}; the next one may succeed.
// worker.py is the same in Python.
#include <absl/flags/flag.h>
#include <absl/flags/parse.h>
#include <absl/flags/usage.h>
#include <time.h>
#include <torch/torch.h>
#include <torch/version.h>

#include <cstdlib>
#include <exception>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "ac2/testing/counting_allocator.h"
#include "benchmarks/networks/networks.h"
#include "examples/checkpointing.h"
#include "policies/strategies.h"

ABSL_FLAG(bool, tiny, false, "the same ops on a few numbers");
ABSL_FLAG(int64_t, threads, 1, "threads of LibTorch");

namespace {

using Json = nlohmann::json;
using peers::Network;

double seconds(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

peers::Region region_of(const gpt::Checkpointing& checkpointing) {
  return
      [&checkpointing](const std::function<peers::Tensors()>& part) { return gpt::checkpointed(checkpointing, part); };
}

class Models {
 public:
  explicit Models(peers::Size size) : size_(size) {}

  Network& network(const std::string& name) {
    std::shared_ptr<Network>& network = networks_[name];
    if (!network) network = peers::make_network(name, size_);
    return *network;
  }

 private:
  peers::Size size_;
  std::map<std::string, std::shared_ptr<Network>> networks_;
};

// All times and bytes are those of one step: forward, backward, and freeing the graph.
Json run_step(Network& network, const gpt::Checkpointing& checkpointing) {
  for (at::Tensor& parameter : network.parameters()) parameter.mutable_grad().reset();
  const at::Tensor input = network.input();
  const peers::Region region = region_of(checkpointing);
  auto& memory = ac2::testing::CountingAllocator::install();
  const int64_t before = memory.current_bytes();
  memory.reset_peak();
  const double wall = seconds(CLOCK_MONOTONIC), cpu = seconds(CLOCK_PROCESS_CPUTIME_ID);

  at::Tensor loss = network.forward(input.clone().requires_grad_(), region).sum();
  const int64_t held = memory.current_bytes() - before, forward_peak = memory.peak_bytes() - before;
  memory.reset_peak();
  loss.backward();
  loss.reset();

  return {{"seconds", seconds(CLOCK_MONOTONIC) - wall},
          {"cpu_seconds", seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu},
          {"held_bytes", held},
          {"forward_peak_bytes", forward_peak},
          {"backward_peak_bytes", memory.peak_bytes() - before}};
}

Json count_replays(Network& network, gpt::Checkpointing checkpointing) {
  gpt::Traces traces;
  checkpointing.traces = &traces;
  run_step(network, checkpointing);
  int64_t replayed = 0;
  for (const auto& trace : traces) replayed += trace->stats().recomputed_ops;
  return {{"replayed_ops", replayed}};
}

Json write_gradients(Network& network, const gpt::Checkpointing& checkpointing, const std::string& path) {
  run_step(network, checkpointing);
  std::ofstream file(path, std::ios::binary);
  int64_t bytes = 0;
  for (const auto& parameter : network.named_parameters()) {
    TORCH_CHECK(parameter.value().grad().defined(), "Parameter ", parameter.key(), " got no gradient.");
    const at::Tensor gradient = parameter.value().grad().contiguous();
    file.write(static_cast<const char*>(gradient.const_data_ptr()), static_cast<std::streamsize>(gradient.nbytes()));
    bytes += static_cast<int64_t>(gradient.nbytes());
  }
  file.close();
  TORCH_CHECK(file, "Cannot write ", path, ".");
  return {{"bytes", bytes}};
}

Json describe(Models& models) {
  Json sizes = Json::object();
  for (const std::string& name : peers::network_names()) {
    for (const at::Tensor& parameter : models.network(name).parameters()) {
      sizes[name].push_back(parameter.sizes().vec());
    }
  }
  return {{"models", sizes},
          {"order", peers::network_names()},
          {"forms", gpt::policy_names()},
          {"saved_ops", ac2::policies::compute_intensive_ops()},
          {"libtorch", TORCH_VERSION},
          {"threads", at::get_num_threads()}};
}

Json answer(Models& models, const Json& request) {
  const std::string& what = request.at("do").get_ref<const std::string&>();
  if (what == "describe") return describe(models);
  Network& network = models.network(request.at("model"));
  const gpt::Checkpointing checkpointing = gpt::checkpointing_by_name(request.at("form"));
  if (what == "step") return run_step(network, checkpointing);
  if (what == "count") return count_replays(network, checkpointing);
  TORCH_CHECK(what == "gradients", "Unknown request \"", what, "\". It is one of: describe, step, count, gradients.");
  return write_gradients(network, checkpointing, request.at("file"));
}

Json answer_or_error(Models& models, const std::string& line) {
  try {
    return answer(models, Json::parse(line));
  } catch (const c10::Error& error) {
    return {{"error", error.what_without_backtrace()}};
  } catch (const std::exception& error) {
    return {{"error", error.what()}};
  }
}

}  // namespace

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("Trains the models of compare_peers; reads requests, writes answers, as JSON lines.");
  absl::ParseCommandLine(argc, argv);
  const int64_t threads = absl::GetFlag(FLAGS_threads);
  if (threads < 1) {
    std::cerr << "peer_models: threads is " << threads << "; it must be at least 1.\n";
    return EXIT_FAILURE;
  }
  at::set_num_threads(static_cast<int>(threads));
  ac2::testing::CountingAllocator::install();
  Models models(absl::GetFlag(FLAGS_tiny) ? peers::Size::kTiny : peers::Size::kFull);
  for (std::string line; std::getline(std::cin, line);) std::cout << answer_or_error(models, line) << std::endl;
  return EXIT_SUCCESS;
}

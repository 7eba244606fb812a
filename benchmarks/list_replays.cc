// Prints each op that the backward of one region replays, in order, and for whom: one GPT block unless told otherwise.
//
//   list_replays                                      the last of eight GPT blocks, under recompute_all
//   list_replays --model=resnet18 --region=2 --policy=save_compute_intensive
//   list_replays --explain                            ac2::explain() of the same
//
// Read from the region's timeline (ScopeOptions::timeline), by to_chrome_trace().
#include <absl/flags/flag.h>
#include <absl/flags/parse.h>
#include <absl/flags/usage.h>
#include <torch/torch.h>

#include <cstdlib>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "ac2/ac2.h"
#include "benchmarks/networks/networks.h"
#include "examples/checkpointing.h"
#include "examples/table.h"

ABSL_FLAG(std::string, model, "gpt", "of networks/networks.h");
ABSL_FLAG(std::string, policy, "recompute_all", "or a memory budget such as 40MiB");
ABSL_FLAG(int64_t, region, -1, "which of the model's regions, counted from 0; -1 is the last");
ABSL_FLAG(bool, tiny, false, "the same ops on a few numbers");
ABSL_FLAG(bool, explain, false, "print ac2::explain() instead");

namespace {

using Json = nlohmann::json;

gpt::Traces train(const std::string& model, gpt::Checkpointing checkpointing) {
  gpt::Traces traces;
  checkpointing.traces = &traces;
  const auto network = peers::make_network(model, absl::GetFlag(FLAGS_tiny) ? peers::Size::kTiny : peers::Size::kFull);
  network
      ->forward(network->input().requires_grad_(),
                [&](const std::function<peers::Tensors()>& part) { return gpt::checkpointed(checkpointing, part); })
      .sum()
      .backward();
  return traces;
}

void print_replays(const ac2::Trace& trace) {
  std::vector<std::vector<std::string>> rows;
  const Json log = Json::parse(to_chrome_trace(trace));
  for (const Json& event : log.at("traceEvents")) {
    if (event.value("cat", "") != "replay") continue;
    const Json& args = event.at("args");
    rows.push_back({event.at("name").get<std::string>() + " (op " + std::to_string(args.at("op").get<int64_t>()) + ")",
                    args.at("for"), args.at("asked by")});
  }
  const ac2::TraceStats stats = trace.stats();
  std::cout << stats.recorded_ops << " ops recorded, " << stats.recomputed_ops << " replayed:\n\n";
  gpt::print_table(std::cout, {"replayed", "on the way to", "which was asked for by"}, rows);
}

void run() {
  const std::string model = absl::GetFlag(FLAGS_model), policy = absl::GetFlag(FLAGS_policy);
  const gpt::Checkpointing checkpointing = gpt::checkpointing_by_name(policy);
  TORCH_CHECK(!checkpointing.none(), "The policy \"none\" opens no region, so nothing is replayed.");
  const gpt::Traces traces = train(model, checkpointing);
  const auto count = static_cast<int64_t>(traces.size());
  const int64_t asked = absl::GetFlag(FLAGS_region);
  TORCH_CHECK(asked >= -1 && asked < count, "region is ", asked, "; ", model, " has regions 0 to ", count - 1,
              ", and -1 is the last.");
  const int64_t region = asked == -1 ? count - 1 : asked;
  const ac2::Trace& trace = *traces[static_cast<size_t>(region)];
  std::cout << model << " under " << policy << ", region " << region << " of " << count << ".\n";
  if (absl::GetFlag(FLAGS_explain)) {
    std::cout << ac2::explain(trace);
  } else {
    print_replays(trace);
  }
}

}  // namespace

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("Lists the ops that one region's backward replays, and for whom.");
  absl::ParseCommandLine(argc, argv);
  at::set_num_threads(1);
  try {
    run();
    return EXIT_SUCCESS;
  } catch (const c10::Error& error) {
    std::cerr << "list_replays: " << error.what_without_backtrace() << '\n';
    return EXIT_FAILURE;
  }
}

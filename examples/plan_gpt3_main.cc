// Plans a GPT that fits into no machine, before there is one.
//
//   plan_gpt3                                        GPT-3 175B, one sequence of 2,048 tokens, fp16
//   plan_gpt3 --dtype=bf16 --budgets_gib=40,20,10    for these budgets
//   plan_gpt3 --layers=48 --dim=1600 --heads=25      another model
//   plan_gpt3 --data=16 --tensor=8 --pipeline=8 --micro_batches=96
//                                                    on 1,024 devices: what each of them holds and exchanges
//   plan_gpt3 --model=llama3 --data=8 --tensor=8 --pipeline=16 --micro_batches=64 --sequence
#include <absl/flags/flag.h>
#include <absl/flags/parse.h>
#include <absl/flags/usage.h>
#include <torch/torch.h>

#include <cmath>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "examples/mesh/mesh.h"
#include "examples/plan_gpt3.h"

ABSL_FLAG(int64_t, layers, 96, "Transformer blocks of gpt3");
ABSL_FLAG(int64_t, dim, 12288, "channels of gpt3");
ABSL_FLAG(int64_t, heads, 96, "attention heads of gpt3; must divide dim");
ABSL_FLAG(int64_t, context, 2048, "tokens that gpt3 sees at once");
ABSL_FLAG(int64_t, batch, 1, "sequences per step; on a mesh, in a micro-batch");
ABSL_FLAG(std::string, dtype, "fp16", "of gpt3: fp16, bf16 or fp32");
ABSL_FLAG(double, dropout, 0, "share of values set to zero, 0 to 1; without a mesh");
ABSL_FLAG(std::vector<std::string>, budgets_gib, {},
          "budgets to plan for, in GiB, separated by commas; default: shares of what is held without recomputation; "
          "without a mesh");
ABSL_FLAG(std::string, model, "gpt3", "gpt3, or on a mesh llama3: Llama-3 405B");
ABSL_FLAG(int64_t, data, 0,
          "devices along the mesh's data axis; 0 with parts, tensor and pipeline 0: no mesh, the layers on one device");
ABSL_FLAG(int64_t, parts, 0, "devices along the mesh's context axis, each with a part of each sequence");
ABSL_FLAG(int64_t, tensor, 0, "devices along the mesh's tensor axis");
ABSL_FLAG(int64_t, pipeline, 0, "stages");
ABSL_FLAG(int64_t, micro_batches, 8, "micro-batches in a step, for each device of the data axis");
ABSL_FLAG(bool, sequence, false, "between products each device of a tensor group has a part of the sequence");
ABSL_FLAG(bool, sharded_optimizer, true, "each device of the data axis has a part of the optimizer's tensors");
ABSL_FLAG(double, device_gib, 80, "memory of a device, in GiB");
ABSL_FLAG(double, teraflops, 400, "what a device computes in a second");
ABSL_FLAG(double, link_gb, 450, "what a device sends within its node in a second, in GB");
ABSL_FLAG(double, network_gb, 50, "what a device sends to other nodes in a second, in GB");
ABSL_FLAG(int64_t, node, 8, "devices in a node");
ABSL_FLAG(double, host_gib, 0, "of a node's host memory for copies, in GiB; 0: nothing is copied");
ABSL_FLAG(double, host_link_gb, 50, "what a device copies to the host's memory, and back, in a second, in GB");
ABSL_FLAG(double, spare_percent, 0, "of a step's time, that plans which hold less may add to it");

namespace gpt {
namespace {

at::ScalarType dtype_by_name(const std::string& name) {
  if (name == "fp16") return at::kHalf;
  if (name == "bf16") return at::kBFloat16;
  TORCH_CHECK(name == "fp32", "Unknown dtype \"", name, "\"; expected fp16, bf16 or fp32.");
  return at::kFloat;
}

int64_t bytes_of_gib(double gib) {
  return std::llround(gib * static_cast<double>(int64_t{1} << 30));
}

int64_t budget_from(const std::string& text) {
  char* end = nullptr;
  const double gib = std::strtod(text.c_str(), &end);
  TORCH_CHECK(end != text.c_str() && *end == '\0' && std::isfinite(gib) && gib > 0 && gib < 1e6, "--budgets_gib has \"",
              text, "\"; expected positive numbers, such as 40,20,2.5.");
  return bytes_of_gib(gib);
}

bool has_mesh() {
  return absl::GetFlag(FLAGS_data) != 0 || absl::GetFlag(FLAGS_parts) != 0 || absl::GetFlag(FLAGS_tensor) != 0 ||
         absl::GetFlag(FLAGS_pipeline) != 0;
}

void run_on_mesh() {
  LargeModel model = large_model_by_name(absl::GetFlag(FLAGS_model));
  if (!model.llama) {
    model.layers = absl::GetFlag(FLAGS_layers);
    model.dim = absl::GetFlag(FLAGS_dim);
    model.heads = model.key_heads = absl::GetFlag(FLAGS_heads);
    model.hidden = 4 * model.dim;
    model.context = absl::GetFlag(FLAGS_context);
    model.dtype = dtype_by_name(absl::GetFlag(FLAGS_dtype));
  }
  const auto along = [](int64_t devices) { return devices == 0 ? 1 : devices; };
  const double gib = absl::GetFlag(FLAGS_device_gib);
  TORCH_CHECK(gib > 0 && gib < 1e6, "--device_gib is ", gib, "; expected a positive number.");
  const double teraflops = absl::GetFlag(FLAGS_teraflops), link_gb = absl::GetFlag(FLAGS_link_gb),
               network_gb = absl::GetFlag(FLAGS_network_gb);
  TORCH_CHECK(teraflops > 0 && link_gb > 0 && network_gb > 0, "--teraflops is ", teraflops, ", --link_gb is ", link_gb,
              " and --network_gb is ", network_gb, "; expected positive numbers.");
  const double host_gib = absl::GetFlag(FLAGS_host_gib), host_link_gb = absl::GetFlag(FLAGS_host_link_gb);
  TORCH_CHECK(host_gib >= 0 && host_gib < 1e6 && host_link_gb > 0, "--host_gib is ", host_gib,
              " and --host_link_gb is ", host_link_gb, "; expected numbers that are not negative, and a speed.");
  print_mesh_plan(std::cout, plan_mesh({.model = model,
                                        .mesh = {.data = along(absl::GetFlag(FLAGS_data)),
                                                 .context = along(absl::GetFlag(FLAGS_parts)),
                                                 .tensor = along(absl::GetFlag(FLAGS_tensor)),
                                                 .pipeline = along(absl::GetFlag(FLAGS_pipeline))},
                                        .micro_batches = absl::GetFlag(FLAGS_micro_batches),
                                        .batch = absl::GetFlag(FLAGS_batch),
                                        .sequence = absl::GetFlag(FLAGS_sequence),
                                        .sharded_optimizer = absl::GetFlag(FLAGS_sharded_optimizer),
                                        .device_bytes = bytes_of_gib(gib),
                                        .flops = teraflops * 1e12,
                                        .link_bytes = link_gb * 1e9,
                                        .network_bytes = network_gb * 1e9,
                                        .devices_per_node = absl::GetFlag(FLAGS_node),
                                        .host_bytes = bytes_of_gib(host_gib),
                                        .host_link_bytes = host_link_gb * 1e9,
                                        .spare = absl::GetFlag(FLAGS_spare_percent) / 100}));
}

void run() {
  if (has_mesh()) {
    run_on_mesh();
    return;
  }
  TORCH_CHECK(absl::GetFlag(FLAGS_model) == "gpt3", "--model=", absl::GetFlag(FLAGS_model),
              " is for a mesh: give --data, --parts, --tensor or --pipeline too.");
  LargeGptOptions options{.layers = absl::GetFlag(FLAGS_layers),
                          .dim = absl::GetFlag(FLAGS_dim),
                          .heads = absl::GetFlag(FLAGS_heads),
                          .context = absl::GetFlag(FLAGS_context),
                          .batch = absl::GetFlag(FLAGS_batch),
                          .dtype = dtype_by_name(absl::GetFlag(FLAGS_dtype)),
                          .dropout = absl::GetFlag(FLAGS_dropout)};
  for (const std::string& budget : absl::GetFlag(FLAGS_budgets_gib)) options.budgets.push_back(budget_from(budget));
  print_plans(std::cout, plan_layers(options));
}

}  // namespace
}  // namespace gpt

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("Plans what a large GPT keeps for backward, without running it.");
  const auto arguments = absl::ParseCommandLine(argc, argv);
  if (arguments.size() > 1) {
    std::cerr << "plan_gpt3: unexpected argument \"" << arguments[1] << "\"; flags are written --name=value.\n";
    return EXIT_FAILURE;
  }
  try {
    gpt::run();
    return EXIT_SUCCESS;
  } catch (const c10::Error& error) {
    std::cerr << "plan_gpt3: " << error.what_without_backtrace() << '\n';
  } catch (const std::exception& error) {
    std::cerr << "plan_gpt3: " << error.what() << '\n';
  }
  return EXIT_FAILURE;
}

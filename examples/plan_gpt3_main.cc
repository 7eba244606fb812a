// Plans a GPT that fits into no machine, before there is one.
//
//   plan_gpt3                                        GPT-3 175B, one sequence of 2,048 tokens, fp16
//   plan_gpt3 --dtype=bf16 --budgets_gib=40,20,10    for these budgets
//   plan_gpt3 --layers=48 --dim=1600 --heads=25      another model
#include <absl/flags/flag.h>
#include <absl/flags/parse.h>
#include <absl/flags/usage.h>
#include <torch/torch.h>

#include <cmath>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "examples/plan_gpt3.h"

ABSL_FLAG(int64_t, layers, 96, "Transformer blocks");
ABSL_FLAG(int64_t, dim, 12288, "channels");
ABSL_FLAG(int64_t, heads, 96, "attention heads; must divide dim");
ABSL_FLAG(int64_t, context, 2048, "tokens seen at once");
ABSL_FLAG(int64_t, batch, 1, "sequences per step");
ABSL_FLAG(std::string, dtype, "fp16", "fp16, bf16 or fp32");
ABSL_FLAG(double, dropout, 0, "share of values set to zero, 0 to 1");
ABSL_FLAG(std::vector<std::string>, budgets_gib, {},
          "budgets to plan for, in GiB, separated by commas; default: shares of what is held without recomputation");

namespace gpt {
namespace {

at::ScalarType dtype_by_name(const std::string& name) {
  if (name == "fp16") return at::kHalf;
  if (name == "bf16") return at::kBFloat16;
  TORCH_CHECK(name == "fp32", "Unknown dtype \"", name, "\"; expected fp16, bf16 or fp32.");
  return at::kFloat;
}

int64_t budget_from(const std::string& text) {
  char* end = nullptr;
  const double gib = std::strtod(text.c_str(), &end);
  TORCH_CHECK(end != text.c_str() && *end == '\0' && std::isfinite(gib) && gib > 0 && gib < 1e6, "--budgets_gib has \"",
              text, "\"; expected positive numbers, such as 40,20,2.5.");
  return std::llround(gib * static_cast<double>(int64_t{1} << 30));
}

void run() {
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

#include "examples/variants.h"

#include <ATen/ATen.h>
#include <absl/flags/flag.h>
#include <absl/flags/parse.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iostream>

#include "ac2/testing/counting_allocator.h"
#include "examples/passive_threads.h"
#include "examples/table.h"

ABSL_FLAG(int64_t, steps, 10, "training steps of each variant");
ABSL_FLAG(bool, small, false, "tiny sizes, to see that it runs");

namespace example {
namespace {

using Clock = std::chrono::steady_clock;

struct Step {
  double seconds = 0;
  int64_t held_bytes = 0;
  int64_t peak_bytes = 0;
  float loss = 0;
  std::vector<at::Tensor> gradients;
};

Step train_step(const Variant& variant, int64_t seed) {
  auto& memory = ac2::testing::CountingAllocator::install();
  at::manual_seed(static_cast<uint64_t>(seed));
  variant.model->zero_grad();
  memory.reset_peak();
  const int64_t before = memory.current_bytes();
  Step step;
  const auto start = Clock::now();
  at::Tensor loss = variant.loss();
  step.held_bytes = memory.current_bytes() - before;
  loss.backward();
  step.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  step.peak_bytes = memory.peak_bytes() - before;
  step.loss = loss.item<float>();
  for (const at::Tensor& parameter : variant.model->parameters()) step.gradients.push_back(parameter.grad().clone());
  if (variant.update) variant.update();
  return step;
}

bool same(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  return std::ranges::equal(a, b, [](const at::Tensor& x, const at::Tensor& y) { return at::equal(x, y); });
}

}  // namespace

std::vector<Measured> run(const std::vector<Variant>& variants, int64_t steps) {
  TORCH_CHECK(steps >= 1, "steps is ", steps, "; it must be 1 or more.");
  ac2::testing::CountingAllocator::install();
  std::vector<Measured> measured(variants.size());
  std::vector<std::vector<double>> seconds(variants.size());
  for (Measured& m : measured) m.same_gradients = true;
  for (int64_t step = 0; step < steps; ++step) {
    std::vector<at::Tensor> expected;
    for (size_t i = 0; i < variants.size(); ++i) {
      Step result = train_step(variants[i], step);
      if (i == 0) expected = result.gradients;
      measured[i].held_bytes = std::max(measured[i].held_bytes, result.held_bytes);
      measured[i].peak_bytes = std::max(measured[i].peak_bytes, result.peak_bytes);
      measured[i].same_gradients = measured[i].same_gradients && same(result.gradients, expected);
      measured[i].losses.push_back(result.loss);
      if (step > 0 || steps == 1) seconds[i].push_back(result.seconds);
    }
  }
  for (size_t i = 0; i < variants.size(); ++i) {
    measured[i].name = variants[i].name;
    measured[i].seconds = gpt::quantile(seconds[i], 0.5);
    measured[i].same_buffers = same(variants[i].model->buffers(), variants[0].model->buffers());
    variants[i].model->zero_grad();
  }
  return measured;
}

bool print(std::ostream& out, const std::vector<Measured>& measured) {
  std::vector<std::vector<std::string>> rows;
  bool all_same = true;
  for (const Measured& m : measured) {
    const bool same = m.same_gradients && m.same_buffers;
    rows.push_back({m.name, gpt::fixed(m.seconds * 1e3, 1) + " ms", gpt::mebibytes(m.held_bytes),
                    gpt::mebibytes(m.peak_bytes), same ? "equal" : "DIFFERENT"});
    all_same = all_same && same;
  }
  gpt::print_table(out, {"variant", "step time", "held after forward", "peak", "gradients"}, rows);
  out << (all_same ? "\nEvery gradient of every step has the same bits, and so have all buffers at the end.\n"
                   : "\nDIFFERENT: gradients or buffers of a variant are not those of the first.\n");
  return all_same;
}

int run_main(int argc, char** argv, const std::function<std::vector<Variant>(bool small)>& make) {
  gpt::use_passive_threads(argv);
  absl::ParseCommandLine(argc, argv);
  try {
    // Before the models, so that they are counted on both sides of every difference.
    ac2::testing::CountingAllocator::install();
    return print(std::cout, run(make(absl::GetFlag(FLAGS_small)), absl::GetFlag(FLAGS_steps))) ? EXIT_SUCCESS
                                                                                               : EXIT_FAILURE;
  } catch (const c10::Error& error) {
    std::cerr << error.what_without_backtrace() << '\n';
    return EXIT_FAILURE;
  }
}

}  // namespace example

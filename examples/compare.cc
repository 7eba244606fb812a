#include "examples/compare.h"

#include <algorithm>
#include <bit>
#include <memory>

#include "absl/strings/str_cat.h"

#include "examples/checkpointing.h"
#include "examples/table.h"

namespace gpt {
namespace {

struct Run {
  std::unique_ptr<Trainer> trainer;
  std::vector<StepResult> steps;
};

bool same_bits(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

// Of equal bits, so that NaN equals itself: a training that diverges must diverge alike.
bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return at::equal(a.detach().view(at::kInt), b.detach().view(at::kInt));
}

bool same_losses(const Run& a, const Run& b) {
  return std::ranges::equal(a.steps, b.steps,
                            [](const StepResult& x, const StepResult& y) { return same_bits(x.loss, y.loss); });
}

bool same_reduced(const Run& a, const Run& b) {
  return std::ranges::equal(a.steps, b.steps,
                            [](const StepResult& x, const StepResult& y) { return x.reduced == y.reduced; });
}

bool same_parameters(const Run& a, const Run& b) {
  return std::ranges::equal(a.trainer->model()->parameters(), b.trainer->model()->parameters(),
                            [](const at::Tensor& x, const at::Tensor& y) { return same_bits(x, y); });
}

ComparedPolicy summarize(const std::string& name, const Run& run, const Run& plain) {
  ComparedPolicy result{.name = name};
  const size_t untimed = std::min<size_t>(3, run.steps.size() - 1);
  std::vector<double> seconds, ratios;
  for (size_t i = 0; i < run.steps.size(); ++i) {
    result.held_bytes = std::max(result.held_bytes, run.steps[i].held_bytes);
    result.peak_bytes = std::max(result.peak_bytes, run.steps[i].peak_bytes);
    result.reduced.calls += run.steps[i].reduced.calls;
    result.reduced.bytes += run.steps[i].reduced.bytes;
    if (i < untimed) continue;
    seconds.push_back(run.steps[i].seconds);
    ratios.push_back(run.steps[i].seconds / plain.steps[i].seconds);
  }
  result.median_seconds = quantile(seconds, 0.5);
  result.ratio = quantile(ratios, 0.5);
  result.final_loss = run.steps.back().loss;
  result.same_losses = same_losses(run, plain);
  result.same_parameters = same_parameters(run, plain);
  result.same_reduced = same_reduced(run, plain);
  return result;
}

}  // namespace

std::vector<ComparedPolicy> compare_policies(const TextData& text, const TrainOptions& options,
                                             const std::vector<std::string>& names,
                                             const std::function<void(int64_t)>& after_step) {
  TORCH_CHECK(!names.empty() && names[0] == "none", "compare_policies compares with \"none\", which must come first.");
  std::vector<Run> runs(names.size());
  for (size_t i = 0; i < names.size(); ++i) runs[i].trainer = std::make_unique<Trainer>(text, options, names[i]);
  for (int64_t step = 0; step < options.steps; ++step) {
    for (size_t turn = 0; turn < runs.size(); ++turn) {
      Run& run = runs[(turn + static_cast<size_t>(step)) % runs.size()];
      run.steps.push_back(run.trainer->step());
    }
    after_step(step + 1);
  }
  std::vector<ComparedPolicy> compared;
  for (size_t i = 0; i < names.size(); ++i) compared.push_back(summarize(names[i], runs[i], runs[0]));
  return compared;
}

bool print_comparison(std::ostream& out, const std::vector<ComparedPolicy>& compared) {
  std::vector<std::vector<std::string>> rows;
  bool all_equal = true;
  const bool in_a_job = std::ranges::any_of(compared, [](const auto& policy) { return policy.reduced.calls > 0; });
  for (const auto& policy : compared) {
    rows.push_back({policy.name, fixed(policy.median_seconds * 1e3, 1) + " ms", fixed(policy.ratio, 3),
                    mebibytes(policy.held_bytes), mebibytes(policy.peak_bytes), exact(policy.final_loss)});
    if (in_a_job) {
      rows.back().push_back(absl::StrCat(policy.reduced.calls, " of ", mebibytes(policy.reduced.bytes)));
    }
    all_equal = all_equal && policy.same_losses && policy.same_parameters && policy.same_reduced;
  }
  std::vector<std::string> columns = {"policy", "step time", "/ none", "held after forward", "peak", "final loss"};
  if (in_a_job) columns.push_back("all-reduces");
  print_table(out, columns, rows);
  if (all_equal) {
    out << "\nAll policies trained equally: every loss of every step and every final parameter has the same bits.\n";
    return true;
  }
  out << '\n';
  for (const auto& policy : compared) {
    if (!policy.same_losses) out << "DIFFERENT from none: the losses under " << policy.name << ".\n";
    if (!policy.same_reduced) out << "DIFFERENT from none: the all-reduces under " << policy.name << ".\n";
    if (!policy.same_parameters) out << "DIFFERENT from none: the final parameters under " << policy.name << ".\n";
  }
  return false;
}

}  // namespace gpt

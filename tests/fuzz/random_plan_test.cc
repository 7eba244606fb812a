// Plans for random programs: recorded, planned for some number of bytes, and run by the plan. What comes out must be
// what plain autograd gives, and no more is replayed than the plan says. On the fake accelerator plans copy too, and on
// the CPU some pack in a form that is exact.
//
//   ./bazelw run //tests/fuzz:random_plan_test -- --first_seed=0 --seeds=100000
#include <torch/custom_class.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <string>

#include "ac2/offload.h"
#include "ac2/plan.h"
#include "tests/fuzz/campaign.h"
#include "tests/fuzz/compare.h"
#include "tests/fuzz/dice.h"
#include "tests/fuzz/functions.h"
#include "tests/fuzz/outcome.h"
#include "tests/fuzz/program.h"
#include "tests/support/fake_accelerator.h"
#include "tests/support/warnings.h"

namespace ac2::test {
namespace {

using RandomPlanTest = CleanTest;

Way in_one_region(uint32_t seed) {
  Way way = Way::draw(seed);
  way.setting.one_region = true;
  way.setting.budget = 0;
  way.setting.keeps = false;  // a plan has a budget
  // A plan does not know that a tag may keep a result for hooks alone (docs/budget.md).
  way.setting.tags = false;
  // The step that is recorded takes its derivatives inside the region, the one that is run outside of it.
  if (way.backward == Backward::kTwoDerivatives) way.backward = Backward::kOnce;
  return way;
}

// Of the step under a memory budget, on paper: the budget is met, or the error says that it cannot be.
std::string budget_differences(StepPlanner& planner, int64_t bytes) {
  try {
    const PlanSummary summary = planner.budget(bytes);
    if (summary.peak_bytes > bytes || summary.forward_bytes > summary.peak_bytes) {
      return "a budget of " + std::to_string(bytes) + " bytes holds " + std::to_string(summary.forward_bytes) +
             " after forward and " + std::to_string(summary.peak_bytes) + " at most\n";
    }
  } catch (const c10::Error& error) {
    const std::string message = error.what_without_backtrace();
    if (message.find("cannot meet") == std::string::npos && message.find("run again more") == std::string::npos) {
      return message + "\n";
    }
  }
  return "";
}

Verdict compare_planned_with(const PlanOptions& options, const ProgramFn& program, uint32_t input_seed,
                             const Way& way) {
  const auto start = [&] {
    at::manual_seed(input_seed);
    return inputs_of(input_seed, way.device);
  };
  Verdict verdict;
  const Tensors plain_inputs = start();
  const Outcome expected = run_on(program, plain_inputs, plain_inputs, way, nullptr);
  let_engine_go(way.device);
  verdict.counts = expected.error.empty();
  if (!verdict.counts) return verdict;
  const int64_t nodes_before = live_node_count();
  Setting setting = way.setting;
  PlanSummary summary;
  int64_t bytes = 0;
  try {
    Outcome recorded;
    const Tensors inputs = start();
    StepPlanner planner([&] { recorded = run_on(program, inputs, inputs, way, &setting); }, options);
    verdict.difference = differences(recorded, expected);
    if (!verdict.difference.empty()) {
      verdict.difference = "when recorded: " + verdict.difference + left_behind(way, nodes_before);
      return verdict;
    }
    const int64_t least = planner.smallest().summary().peak_bytes;
    const int64_t most = planner.summarize([](const auto&) { return true; }).peak_bytes;
    Dice dice(input_seed);
    bytes = std::max<int64_t>(1, least + (std::max(most, least) - least) * dice.roll(5) / 4);
    verdict.difference = budget_differences(planner, bytes) +
                         budget_differences(planner, std::max<int64_t>(1, bytes / 2)) +
                         budget_differences(planner, most + 1);
    if (!verdict.difference.empty()) return verdict;
    const auto plan = planner.plan(bytes);
    summary = plan.summary();
    setting.outermost = plan;
  } catch (const c10::Error& error) {
    verdict.counts = false;
    const std::string message = error.what_without_backtrace();
    if (message.find("nothing") == std::string::npos) verdict.difference = message + "\n";
    verdict.difference += left_behind(way, nodes_before);
    return verdict;
  }
  {
    const Tensors inputs = start();
    const Outcome actual = run_on(program, inputs, inputs, way, &setting);
    verdict.difference = differences(actual, expected);
    verdict.replayed_ops = actual.replayed_ops;
    verdict.evicted_values = actual.evicted_values;
    verdict.offloaded_bytes = actual.offloaded_bytes;
    // Fewer where something that a plan knows nothing of, an op in a DisableCheckpointing say, keeps a value alive.
    // More where values had to be dropped that a plan would have kept: what the program holds in forward for no
    // backward keeps what it was made from, for which there was no room.
    if (way.backward == Backward::kOnce && actual.evicted_values == 0 && actual.replayed_ops > summary.replayed_ops) {
      verdict.difference += std::to_string(actual.replayed_ops) + " ops were replayed, planned were " +
                            std::to_string(summary.replayed_ops) + " for " + std::to_string(bytes) + " bytes\n";
    }
  }
  setting.outermost.reset();
  verdict.difference += left_behind(way, nodes_before);
  return verdict;
}

std::atomic<int64_t> unpacked{0};

// The form hides the bytes that it has, but for a few, so that a plan takes it for narrower than any value.
FormPtr exact_form() {
  struct Hidden : torch::CustomClassHolder {
    explicit Hidden(at::Tensor copy) : copy(std::move(copy)) {}
    at::Tensor copy;
  };
  static const FormPtr form = forms::functions(
      [](const at::Tensor& tensor) {
        return c10::ivalue::Tuple::create({at::empty({1}, tensor.options().dtype(at::kByte)),
                                           c10::IValue::make_capsule(c10::make_intrusive<Hidden>(tensor.clone()))});
      },
      [](const c10::IValue& packed) {
        ++unpacked;
        const c10::IValue& hidden = packed.toTupleRef().elements()[1];
        return c10::static_intrusive_pointer_cast<Hidden>(hidden.toCapsule())->copy.clone();
      },
      /*exact=*/true);
  return form;
}

Verdict compare_packed(const ProgramFn& program, uint32_t input_seed, const Way& way) {
  return compare_planned_with({.modelled_costs = true, .forms = {forms::one_bit(), exact_form()}}, program, input_seed,
                              way);
}

Verdict compare_planned(const ProgramFn& program, uint32_t input_seed, const Way& way) {
  return compare_planned_with({.modelled_costs = true}, program, input_seed, way);
}

// On the fake accelerator, whose copies make progress as the seed says; planned for fast copies and slow ones.
Verdict compare_copied(const ProgramFn& program, uint32_t input_seed, const Way& way) {
  FakeAccelerator& fake = FakeAccelerator::install();
  fake.restart(input_seed);
  Dice dice(input_seed + 31);
  PlanOptions options{.modelled_costs = true,
                      .forms = {forms::host_memory({.min_bytes = dice.roll(3) * 32})},
                      .copy_bytes_per_forward = 100};
  for (int i = dice.roll(5); i > 0; --i) *options.copy_bytes_per_forward *= 10;
  Verdict verdict = compare_planned_with(options, program, input_seed, way);
  if (offload_memory().bytes_in_use != 0) verdict.difference += "pinned bytes are in use\n";
  fake.finish();
  release_offload_memory();
  return verdict;
}

Way on_the_accelerator(uint32_t seed) {
  Way way = in_one_region(seed);
  way.device = FakeAccelerator::install().device();
  return way;
}

TEST_F(RandomPlanTest, ThatCopyGiveWhatPlainAutogradGivesAndReplayNoMoreThanTheySaid) {
  FakeAccelerator::install();
  Warnings of_small_results;
  const Tally tally = run_campaign({.seeds = 500,
                                    .draw = &on_the_accelerator,
                                    .judge = &compare_copied,
                                    .fixture = "RandomPlanTest",
                                    .judge_name = "compare_copied",
                                    .limits = {.slopes = false, .kernels = false}});
  EXPECT_GE(tally.compared, tally.programs / 4) << "of " << tally.programs;
  EXPECT_GT(tally.offloaded_bytes, 50 * tally.compared);
}

TEST_F(RandomPlanTest, GiveWhatPlainAutogradGivesAndReplayNoMoreThanTheySaid) {
  const Tally tally = run_campaign({.seeds = 1000,
                                    .draw = &in_one_region,
                                    .judge = &compare_planned,
                                    .fixture = "RandomPlanTest",
                                    .judge_name = "compare_planned",
                                    .limits = {.slopes = false, .kernels = false}});
  EXPECT_GE(tally.compared, tally.programs / 3) << "of " << tally.programs;
  EXPECT_GE(tally.replayed_ops, tally.compared);
  EXPECT_LE(tally.evicted_values, tally.compared / 100);
}

// Packing costs as much as two small ops, and more than most that these programs have. So plans pack where a result is
// computed from others that were dropped too.
TEST_F(RandomPlanTest, ThatPackGiveWhatPlainAutogradGivesAndReplayNoMoreThanTheySaid) {
  const Tally tally = run_campaign({.seeds = 500,
                                    .draw = &in_one_region,
                                    .judge = &compare_packed,
                                    .fixture = "RandomPlanTest",
                                    .judge_name = "compare_packed",
                                    .limits = {.slopes = false, .kernels = false}});
  EXPECT_GE(tally.compared, tally.programs / 3) << "of " << tally.programs;
  EXPECT_GE(unpacked, tally.compared);
}

}  // namespace
}  // namespace ac2::test

int main(int argc, char** argv) {
  return ac2::test::run_all_tests(argc, argv);
}

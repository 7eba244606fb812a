// Programs drawn at random: several shapes and dtypes, views, writes through them and through other aliases, products,
// draws, the user's own autograd functions, gradients taken in the middle of forward, nested and adjacent regions under
// random policies, tags, names, no_grad, tensors dropped at any time, retained graphs, second derivatives, memory
// budgets. Whatever comes out must be what plain autograd says.
//
// Any number of seeds:
//   ./bazelw run //tests/fuzz:random_programs_test -- --first_seed=0 --seeds=100000
// A seed that fails is reduced to the fewest steps that still do, and printed as a test to paste below.
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <optional>

#include "tests/fuzz/campaign.h"
#include "tests/fuzz/compare.h"
#include "tests/fuzz/functions.h"
#include "tests/fuzz/program.h"
#include "tests/fuzz/reduce.h"

namespace ac2::test {
namespace {

using RandomProgramsTest = CleanTest;

TEST_F(RandomProgramsTest, GiveWhatPlainAutogradGives) {
  const Tally tally = run_campaign({.seeds = 6000,
                                    .draw = &Way::draw,
                                    .judge = [](const auto&... program) { return compare(program...); },
                                    .fixture = "RandomProgramsTest",
                                    .judge_name = "compare",
                                    .limits = {.writes_outside = true}});
  // The others fail in plain autograd: a write that it forbids, a derivative that it has not; or their budget is too
  // small.
  EXPECT_GE(tally.compared, tally.programs / 2) << "of " << tally.programs;
  EXPECT_GE(tally.replayed_ops, tally.compared);
  EXPECT_GE(tally.evicted_values, tally.compared / 4);
}

TEST_F(RandomProgramsTest, TheSameSeedIsTheSameProgram) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    at::manual_seed(1);
    const auto first = Program::draw(seed).source(inputs_of(seed));
    at::manual_seed(1);
    EXPECT_EQ(Program::draw(seed).source(inputs_of(seed)), first);
    EXPECT_GT(first.size(), 10U);
  }
}

// The machinery itself: a program is reduced to the two steps that matter.
TEST_F(RandomProgramsTest, AFailureIsReducedToTheStepsItTakes) {
  const Program program = Program::draw(3);
  const uint32_t a = program.steps[4], b = program.steps[31];
  int tried = 0;
  const Program fewest = reduced(program, [&](const Program& candidate) {
    ++tried;
    const auto& steps = candidate.steps;
    const auto first = std::find(steps.begin(), steps.end(), a);
    return std::find(first, steps.end(), b) != steps.end();
  });
  EXPECT_EQ(fewest.steps, (std::vector<uint32_t>{a, b}));
  EXPECT_LT(tried, 60);
}

// As printed, and pasted, when the copy before a write was taken out of the library to see what this test would say.
TEST_F(RandomProgramsTest, Program74) {
  const ProgramFn program = [](const Tensors& in, Regions& regions) -> Tensors {
    std::optional<at::NoGradGuard> no_grad;
    at::Tensor t0 = in[0];
    at::Tensor t1 = in[1];
    at::Tensor t2 = in[2];
    at::Tensor t3 = in[3];
    at::Tensor t4 = in[4];
    at::Tensor t5 = in[5];
    regions.begin();
    at::Tensor t6 = at::cat({whole(t2), whole(t2)}).slice(0, 2, 6);
    regions.tag(t6, 1);
    at::Tensor t7 = whole(t6).masked_fill(whole(t4) > 0.25, 0);
    t6.detach().clamp_(-0.75, 0.75);
    at::Tensor t8 = at::gelu(whole(t3) + whole(t0));
    t8.addcmul_(t7, t7, 0.125);
    return {at::scalar_tensor(0), t0 * 1, t8 * 1};
  };
  EXPECT_EQ(compare(program, 74,
                    {.setting = {.policy = 0, .must = 1, .verify = false, .budget = 0, .names = false},
                     .backward = Backward::kTwoDerivatives})
                .difference,
            "");
}

}  // namespace
}  // namespace ac2::test

int main(int argc, char** argv) {
  return ac2::test::run_all_tests(argc, argv);
}

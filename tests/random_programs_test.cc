// Programs drawn at random: several shapes and dtypes, views, writes through them and through other aliases, products,
// draws, nested and adjacent regions under random policies, tags, names, no_grad, tensors dropped at any time, retained
// graphs, second derivatives, memory budgets. Whatever comes out must be what plain autograd says.
//
// Any number of seeds:
//   ./bazelw run //tests:random_programs_test -- --first_seed=0 --seeds=100000
// A seed that fails is reduced to the fewest steps that still do, and printed as a test to paste below.
#include <algorithm>
#include <iostream>
#include <optional>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "tests/random/compare.h"
#include "tests/random/machine.h"
#include "tests/random/program.h"
#include "tests/random/reduce.h"

ABSL_FLAG(uint32_t, first_seed, 0, "The first program's seed");
ABSL_FLAG(uint32_t, seeds, 1000, "How many programs are run, one for each seed from --first_seed on");

namespace ac2::test {
namespace {

using RandomProgramsTest = CleanTest;

TEST_F(RandomProgramsTest, GiveWhatPlainAutogradGives) {
  const uint32_t first = absl::GetFlag(FLAGS_first_seed), count = absl::GetFlag(FLAGS_seeds);
  uint32_t compared = 0;
  int64_t replayed_ops = 0, evicted_values = 0;
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t seed = first + i;
    const Program program = Program::draw(seed);
    const Way way = Way::draw(seed);
    const Verdict verdict = compare(program, seed, way);
    compared += verdict.counts;
    replayed_ops += verdict.replayed_ops;
    evicted_values += verdict.evicted_values;
    if (!verdict.difference.empty()) {
      const Program fewest =
          reduced(program, [&](const Program& candidate) { return !compare(candidate, seed, way).difference.empty(); });
      ADD_FAILURE() << "program " << seed << ":\n"
                    << compare(fewest, seed, way).difference << as_test(fewest, seed, way);
      return;
    }
    if ((i + 1) % 10000 == 0) std::cerr << i + 1 << " programs\n";
  }
  std::cerr << compared << " of " << count << " programs compared, " << replayed_ops << " ops replayed, "
            << evicted_values << " values evicted\n";
  // The others fail in plain autograd: a write that it forbids, a derivative that it has not; or their budget is too
  // small.
  EXPECT_GE(compared, count / 2) << "of " << count;
  EXPECT_GE(replayed_ops, compared);
  EXPECT_GE(evicted_values, compared / 4);
}

TEST_F(RandomProgramsTest, TheSameSeedIsTheSameProgram) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    at::manual_seed(1);
    const auto first = Program::draw(seed).source(inputs_of(seed));
    at::manual_seed(1);
    EXPECT_EQ(Program::draw(seed).source(inputs_of(seed)), first);
    EXPECT_GT(first.size(), 20U);
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
  ::testing::InitGoogleTest(&argc, argv);
  absl::ParseCommandLine(argc, argv);
  return RUN_ALL_TESTS();
}

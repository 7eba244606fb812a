// Programs drawn at random: views, writes through them, products, draws, tags, policies that change
// from op to op, tensors dropped at any time. Whatever comes out must be what plain autograd says.
#include <string>

#include "tests/support/random_program.h"
#include "tests/support/regions.h"

namespace ac2::test {
namespace {

// Decides by the op's index and `seed`, in all four ways.
Policy mixed_policy(uint32_t seed) {
  return [seed](const OpContext& op) -> PolicyDecision {
    switch ((static_cast<uint32_t>(op.index()) * 2654435761U + seed * 40503U) >> 13 & 7U) {
      case 0:
      case 1:
        return CheckpointPolicy::MUST_SAVE;
      case 2:
        return CheckpointPolicy::PREFER_SAVE;
      case 3:
        return SaveWithHooks{[](const at::Tensor& t) { return c10::IValue(t.clone()); },
                             [](const c10::IValue& v) { return v.toTensor(); }};
      default:
        return CheckpointPolicy::PREFER_RECOMPUTE;
    }
  };
}

class RandomProgramsTest : public CleanTest, public ::testing::WithParamInterface<uint32_t> {};

TEST_P(RandomProgramsTest, GiveWhatPlainAutogradGives) {
  for (uint32_t seed = GetParam(); seed < GetParam() + 50; ++seed) {
    SCOPED_TRACE("program " + std::to_string(seed));
    Program program(seed);
    TensorFn fn = [&program](const Tensors& in) { return program(in); };
    Tensors inputs = {sample({4, 4}), sample({4}), constant({4, 4})};
    for (const Policy& policy : {Policy("recompute_all"), Policy("must_save_all"), mixed_policy(seed)}) {
      expect_same_gradients(fn, inputs, policy);
      if (HasFailure()) return;
    }
  }
}

TEST_P(RandomProgramsTest, GiveTheSameInAdjacentRegionsAndInEveryBackward) {
  for (uint32_t seed = GetParam(); seed < GetParam() + 50; ++seed) {
    SCOPED_TRACE("program " + std::to_string(seed));
    Program program(seed, /*parts_are_apart=*/true);
    Tensors inputs = {sample({4, 4}), sample({4}), constant({4, 4})};
    at::manual_seed(seed);
    Tensors expected = program(inputs);
    Tensors expected_gradients = gradients_of(expected, inputs);
    for (const Policy& policy : {Policy("recompute_all"), mixed_policy(seed)}) {
      at::manual_seed(seed);
      Tensors outputs = program(inputs, &policy);
      expect_same_bits(outputs, expected, "output");
      for (bool retain_graph : {true, true, false}) {
        Tensors gradients = gradients_of(outputs, inputs, retain_graph);
        expect_same_bits(gradients, expected_gradients, "gradient");
      }
      outputs.clear();
      expect_nothing_left();
      if (HasFailure()) return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(From, RandomProgramsTest, ::testing::Range(0U, 500U, 50U));

}  // namespace
}  // namespace ac2::test

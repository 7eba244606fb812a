// Somebody else has taken the dispatch key that ac2 records at. In a binary of its own: what a
// process registers for a key concerns all of it.
#include <torch/library.h>

#include "tests/support/regions.h"

// Before any scope is opened, as a library that was loaded earlier would.
TORCH_LIBRARY_IMPL(_, Fake, m) {
  m.fallback(torch::CppFunction::makeFallthrough());
}

namespace ac2::test {
namespace {

using TakenKeyTest = CleanTest;

TEST_F(TakenKeyTest, AScopeSaysWhichKeyAndWhatToDo) {
  expect_error([] { PolicyScope scope; }, {"Fake", "dispatch key"});
  EXPECT_FALSE(is_checkpoint_enabled());
}

TEST_F(TakenKeyTest, EveryScopeSaysSoNotOnlyTheFirst) {
  for (int i = 0; i < 3; ++i) expect_error([] { PolicyScope scope("must_save_all"); }, {"Fake"});
}

TEST_F(TakenKeyTest, ProgramsWithoutScopesAreUndisturbed) {
  error_of([] { PolicyScope scope; });
  at::Tensor x = sample({4});
  tag_with_policy(x, CheckpointPolicy::MUST_SAVE);
  at::Tensor expected = x.detach().cos() * gradient_of(x + 0, x);
  EXPECT_TRUE(same_bits(gradient_of(x.sin(), x), expected));
}

}  // namespace
}  // namespace ac2::test

// A program that uses the library without the ready-made policies. Bazel links it without them, and defines
// AC2_WITHOUT_POLICIES; in CMake the library has them in it.
#include "tests/support/regions.h"

namespace ac2::test {
namespace {

using LibraryAloneTest = CleanTest;

TEST_F(LibraryAloneTest, KnowsItsOwnPoliciesByName) {
  const at::Tensor x = sample({4});
  for (const char* name : {"recompute_all", "must_save_all"}) {
    PolicyScope scope(name);
    x.sin().cos().sum().backward();
    EXPECT_EQ(scope.trace()->stats().recomputed_ops, name == std::string("recompute_all") ? 1 : 0);
    EXPECT_EQ(Policy(name).name(), name);
  }
}

#ifdef AC2_WITHOUT_POLICIES
TEST_F(LibraryAloneTest, ANameThatIsNotLinkedSaysWhatToDo) {
  expect_error([] { Policy("speed"); },
               {"Unknown policy \"speed\". Choose one of: recompute_all, must_save_all.", "depend on //policies"});
}
#endif

TEST_F(LibraryAloneTest, AnUnknownNameListsThoseThatAreLinked) {
  expect_error([] { Policy("sped"); }, {"Unknown policy \"sped\"", "Choose one of: recompute_all, "});
}

// Made before main().
const Policy early("must_save_all");

TEST_F(LibraryAloneTest, FindsNamesBeforeMain) {
  EXPECT_EQ(early.name(), "must_save_all");
}

}  // namespace
}  // namespace ac2::test

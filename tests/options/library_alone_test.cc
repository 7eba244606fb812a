// A program that uses the library without the ready-made policies. Bazel links it without them, and defines
// AC2_WITHOUT_POLICIES; in CMake the library has them in it.
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "ac2/policy.h"
#include "ac2/policy_instance.h"

namespace ac2::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string error_for(const char* name) {
  try {
    Policy policy(name);
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "no error";
}

// Made before main().
const Policy early("must_save_all");

TEST(LibraryAloneTest, KnowsItsOwnPoliciesByName) {
  EXPECT_EQ(Policy("recompute_all").name(), "recompute_all");
  EXPECT_EQ(enter_policy(Policy("recompute_all")).constant, PolicyDecision(CheckpointPolicy::PREFER_RECOMPUTE));
  EXPECT_EQ(enter_policy(Policy("must_save_all")).constant, PolicyDecision(CheckpointPolicy::MUST_SAVE));
  EXPECT_EQ(enter_policy(early).constant, PolicyDecision(CheckpointPolicy::MUST_SAVE));
}

TEST(LibraryAloneTest, AnUnknownNameListsThoseThatAreLinked) {
  EXPECT_THAT(error_for("sped"), HasSubstr("Unknown policy \"sped\". Choose one of: recompute_all, "));
#ifdef AC2_WITHOUT_POLICIES
  EXPECT_THAT(error_for("speed"), AllOf(HasSubstr("Unknown policy \"speed\". Choose one of: recompute_all, "
                                                  "must_save_all. "),
                                        HasSubstr("depend on //policies")));
#endif
}

}  // namespace
}  // namespace ac2::test

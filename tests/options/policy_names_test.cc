// A program that is linked with the ready-made policies and names them in strings alone: it includes no header of
// theirs.
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <string>

#include "ac2/policy.h"
#include "ac2/policy_instance.h"

namespace ac2::test {
namespace {

// Made before main().
const Policy early("speed");

TEST(PolicyNamesTest, ALinkedPolicyIsKnownByItsName) {
  for (const char* name :
       {"recompute_all", "must_save_all", "save_compute_intensive", "speed", "memory", "everything_saveable",
        "nothing_saveable", "dots_saveable", "checkpoint_dots", "dots_with_no_batch_dims_saveable",
        "checkpoint_dots_with_no_batch_dims", "offload_dot_with_no_batch_dims"}) {
    EXPECT_EQ(Policy(name).name(), name);
    EXPECT_EQ(enter_policy(Policy(std::string(name))).name, name);
  }
  EXPECT_TRUE(enter_policy(early).by_operator);
}

TEST(PolicyNamesTest, AnUnknownNameListsThem) {
  try {
    Policy policy("sped");
    FAIL() << "no error";
  } catch (const c10::Error& error) {
    const std::string message = error.what_without_backtrace();
    EXPECT_NE(message.find("Unknown policy \"sped\". Choose one of: recompute_all, save_compute_intensive, "
                           "must_save_all, speed, memory, "),
              std::string::npos)
        << message;
  }
}

}  // namespace
}  // namespace ac2::test

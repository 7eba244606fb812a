// FormCosts: the costs of forms and copies, learned from the values before.
#include "ac2/internal/eviction/form_costs.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace ac2::internal {
namespace {

TEST(FormCostsTest, NothingIsKnownBeforeTheFirstValue) {
  FormCosts costs;
  EXPECT_FALSE(costs.knows(0));
  EXPECT_FALSE(costs.knows_copy_speed());
  EXPECT_TRUE(costs.packed(0, 100, {.bytes = 50, .pack_cost = 6, .unpack_cost = 4}));
  EXPECT_FALSE(costs.packed(0, 100, {.bytes = 50, .pack_cost = 6, .unpack_cost = 4}));
  EXPECT_TRUE(costs.knows(0));
  EXPECT_FALSE(costs.knows(1));
}

TEST(FormCostsTest, TheNextValueCostsAByteWhatThoseBeforeHaveCost) {
  FormCosts costs;
  costs.packed(0, 100, {.bytes = 50, .pack_cost = 6, .unpack_cost = 4});
  costs.packed(0, 300, {.bytes = 150, .pack_cost = 2, .unpack_cost = 8});
  EXPECT_DOUBLE_EQ(costs.of_unpacking(0, 200), 6);  // 12 for 400 bytes
  // 20 for 400 bytes, and a half of them is freed.
  EXPECT_DOUBLE_EQ(costs.for_freed(0, 200), 20);
}

TEST(FormCostsTest, AFormOfNearlyAllBytesCostsAsOneThatFreesASixtyFourth) {
  FormCosts costs;
  costs.packed(0, 100, {.bytes = 100, .pack_cost = 1, .unpack_cost = 1});
  EXPECT_DOUBLE_EQ(costs.for_freed(0, 100), 128);
}

TEST(FormCostsTest, WhatIsExpectedCountsAsOneByteAndOnlyBeforeTheFirstValue) {
  FormCosts costs;
  costs.expect(0, 1000, {.bytes = 250, .pack_cost = 1000, .unpack_cost = 1000});
  EXPECT_DOUBLE_EQ(costs.of_unpacking(0, 10), 10);
  costs.packed(0, 999, {.bytes = 0, .pack_cost = 0, .unpack_cost = 0});
  EXPECT_DOUBLE_EQ(costs.of_unpacking(0, 1000), 1);
  costs.expect(0, 1000, {.bytes = 250, .pack_cost = 1000, .unpack_cost = 1000});
  EXPECT_DOUBLE_EQ(costs.of_unpacking(0, 1000), 1);
  costs.start_anew(0);
  EXPECT_FALSE(costs.knows(0));
}

TEST(FormCostsTest, ACopyTakesTheTimeThatItsSpeedSays) {
  FormCosts costs;
  EXPECT_EQ(costs.of_copying(100), 0);
  costs.set_copy_speed(20);
  EXPECT_DOUBLE_EQ(costs.of_copying(100), 5);
  EXPECT_THROW(costs.set_copy_speed(0), std::logic_error);
}

}  // namespace
}  // namespace ac2::internal

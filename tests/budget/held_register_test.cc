// A budget's register of who holds what, told by hand what tapes tell.
#include "ac2/internal/budget/held_register.h"

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace ac2::internal {
namespace {

constexpr int64_t kBytes = 100;

// A result of an op that costs as much as is said. A tape holds it for a hook.
struct Result {
  explicit Result(HeldRegister& held, double cost = 1) : value(bytes.storage()) {
    HeldRegister::set_droppable(value, true);
    node.cost = cost;
    node.outputs.push_back({.value = &value});
    held.add_call({}, node);
    held.set_place(value, Place::kHeld);
    held.add_hook(value);
  }

  at::Tensor bytes = at::empty({kBytes}, at::kByte);
  Value value;
  Node node;
};

TEST(HeldRegisterTest, WhereThereIsRoomNothingIsChosen) {
  HeldRegister held(/*limit=*/250);
  const Result result(held);
  const HeldRegister::Choice choice = held.choose_for_room(150, /*spare_last=*/false);
  EXPECT_FALSE(choice.victim);
  EXPECT_FALSE(choice.excess);
  EXPECT_EQ(choice.held, kBytes);
}

TEST(HeldRegisterTest, TheVictimIsTheValueThatCostsLeastAndIsDroppedWithoutAForm) {
  HeldRegister held(/*limit=*/250);
  const Result dear(held, /*cost=*/1000), cheap(held, /*cost=*/1);
  const HeldRegister::Choice choice = held.choose_for_room(100, /*spare_last=*/false);
  ASSERT_TRUE(choice.victim);
  EXPECT_EQ(choice.victim->entry.value, &cheap.value);
  EXPECT_EQ(choice.victim->form, std::nullopt);
}

TEST(HeldRegisterTest, AnExcessSaysWhatMustBeHeldAndWhatOfThatIsFixed) {
  HeldRegister held(/*limit=*/250);
  const Result result(held);
  held.pin(result.value);
  held.add_fixed(60);
  const HeldRegister::Choice choice = held.choose_for_room(100, /*spare_last=*/false);
  EXPECT_FALSE(choice.victim);
  ASSERT_TRUE(choice.excess);
  EXPECT_EQ(choice.excess->limit, 250);
  EXPECT_EQ(choice.excess->least, kBytes + 60 + 100);
  EXPECT_EQ(choice.excess->fixed, 60);
  EXPECT_FALSE(held.excess(90, 250));
  EXPECT_EQ(held.excess(91, 250)->least, 251);
}

TEST(HeldRegisterTest, WhatBecomesOfAVictimMeanwhileIsKnown) {
  HeldRegister held(/*limit=*/1000);
  const Result result(held);
  const std::optional<HeldRegister::Entry> chosen = held.choose();
  ASSERT_TRUE(chosen);
  EXPECT_TRUE(held.may_still_drop(*chosen));
  held.pin(result.value);
  EXPECT_FALSE(held.may_still_drop(*chosen));
  EXPECT_TRUE(held.is_held(*chosen));
  held.unpin(result.value);
  held.set_retention(result.value, Retention::kMustSave);
  EXPECT_FALSE(held.may_still_drop(*chosen));
}

TEST(HeldRegisterTest, AValueThatHasTakenTheIdOfAnotherIsNotTakenForIt) {
  HeldRegister held(/*limit=*/1000);
  std::optional<HeldRegister::Entry> chosen;
  {
    Result gone(held);
    chosen = held.choose();
    ASSERT_TRUE(chosen);
    held.remove_hook(gone.value);
    held.set_place(gone.value, Place::kNowhere);
    held.forget(gone.value);
  }
  EXPECT_FALSE(held.is_known(*chosen));
  const Result next(held);
  EXPECT_EQ(next.value.budget().id, chosen->id);
  EXPECT_FALSE(held.is_known(*chosen));
  EXPECT_FALSE(held.may_still_drop(*chosen));
}

TEST(HeldRegisterTest, ASparedValueIsNotChosenUntilThatIsOver) {
  HeldRegister held(/*limit=*/1000);
  const Result dear(held, /*cost=*/1000), cheap(held, /*cost=*/1);
  const std::optional<HeldRegister::Entry> first = held.choose();
  ASSERT_TRUE(first);
  held.spare(*first);
  EXPECT_EQ(held.choose()->value, &dear.value);
  held.stop_sparing(*first);
  EXPECT_EQ(held.choose()->value, &cheap.value);
}

TEST(HeldRegisterTest, WhatTheProgramLetsGoOfIsNowhere) {
  HeldRegister held(/*limit=*/1000);
  Result result(held);
  held.set_place(result.value, Place::kElsewhere);
  EXPECT_EQ(held.bytes(), 0);
  EXPECT_FALSE(held.choose());
  result.bytes.reset();
  EXPECT_FALSE(held.choose());
  held.set_place(result.value, Place::kHeld);  // as a replay makes it
  EXPECT_EQ(held.bytes(), kBytes);
}

}  // namespace
}  // namespace ac2::internal

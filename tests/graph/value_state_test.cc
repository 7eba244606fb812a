// The tables of how a value's state and that of its packed form change, row by row.
#include "ac2/internal/graph/value_state.h"

#include <gtest/gtest.h>

#include <array>
#include <initializer_list>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace ac2::internal {
namespace {

using enum Held;

std::vector<ValueState> all_states() {
  std::vector<ValueState> states;
  for (const Held held : {kNot, kByReference, kAsCopy, Held::kReplayed, kPacked, kWhole}) {
    for (const There there : {There::kNothing, There::kOriginal, There::kReplayed}) {
      states.push_back({held, there});
    }
  }
  return states;
}

// The expected states, written down apart from the table: the next one for each `held`, and for each `there`.
using HeldAfter = std::map<Held, Held>;
using ThereAfter = std::map<There, There>;

const HeldAfter kAnyHeldStays = {{kNot, kNot},       {kByReference, kByReference},
                                 {kAsCopy, kAsCopy}, {Held::kReplayed, Held::kReplayed},
                                 {kPacked, kPacked}, {kWhole, kWhole}};
const ThereAfter kAnyThereStays = {
    {There::kNothing, There::kNothing}, {There::kOriginal, There::kOriginal}, {There::kReplayed, There::kReplayed}};

void expect_row(StateChange change, const HeldAfter& held, const ThereAfter& there) {
  for (const ValueState& state : all_states()) {
    const auto held_after = held.find(state.held);
    const auto there_after = there.find(state.there);
    std::optional<ValueState> expected;
    if (held_after != held.end() && there_after != there.end()) {
      expected = ValueState{held_after->second, there_after->second};
    }
    EXPECT_TRUE(state_after(state, change) == expected)
        << "change " << static_cast<int>(change) << ", held " << static_cast<int>(state.held) << ", there "
        << static_cast<int>(state.there);
  }
}

TEST(ValueStateTest, WhatForwardComputedIsHeldWhereNothingIsHeldYet) {
  expect_row(StateChange::kHold, {{kNot, kByReference}}, kAnyThereStays);
}

TEST(ValueStateTest, ACopyTakesThePlaceOfWhateverIsHeldButOfAWholeTensor) {
  expect_row(
      StateChange::kHoldCopy,
      {{kNot, kAsCopy}, {kByReference, kAsCopy}, {kAsCopy, kAsCopy}, {Held::kReplayed, kAsCopy}, {kPacked, kAsCopy}},
      kAnyThereStays);
}

TEST(ValueStateTest, WhatAReplayMadeIsHeldOnlyWhereItIsThere) {
  expect_row(StateChange::kHoldReplayed, {{kNot, Held::kReplayed}}, {{There::kReplayed, There::kNothing}});
}

TEST(ValueStateTest, OnlyWhatIsHeldInAStorageIsPacked) {
  expect_row(StateChange::kHoldPacked, {{kByReference, kPacked}, {kAsCopy, kPacked}, {Held::kReplayed, kPacked}},
             kAnyThereStays);
}

TEST(ValueStateTest, AWholeTensorIsHeldWhereNothingElseIsHeldOrThere) {
  expect_row(StateChange::kHoldWhole, {{kNot, kWhole}, {kWhole, kWhole}}, {{There::kNothing, There::kNothing}});
}

TEST(ValueStateTest, WhatIsHeldInAnyFormCanBeDropped) {
  expect_row(StateChange::kDropHeld,
             {{kByReference, kNot}, {kAsCopy, kNot}, {Held::kReplayed, kNot}, {kPacked, kNot}, {kWhole, kNot}},
             kAnyThereStays);
}

TEST(ValueStateTest, TheOriginalIsTakenWhereNothingIsThere) {
  expect_row(StateChange::kTakeOriginal, kAnyHeldStays, {{There::kNothing, There::kOriginal}});
}

TEST(ValueStateTest, WhatAReplayMadeTakesThePlaceOfWhateverIsThere) {
  HeldAfter all_but_whole = kAnyHeldStays;
  all_but_whole.erase(kWhole);
  expect_row(StateChange::kTakeReplayed, all_but_whole,
             {{There::kNothing, There::kReplayed},
              {There::kOriginal, There::kReplayed},
              {There::kReplayed, There::kReplayed}});
}

TEST(ValueStateTest, WhatIsThereCanBeDropped) {
  expect_row(StateChange::kDropThere, kAnyHeldStays,
             {{There::kOriginal, There::kNothing}, {There::kReplayed, There::kNothing}});
}

TEST(ValueStateTest, TheRowsStandInTheOrderOfTheChanges) {
  for (size_t i = 0; i < kStateTable.size(); ++i) {
    EXPECT_EQ(static_cast<size_t>(kStateTable[i].change), i);
  }
}

// The expected states of a form, written down apart from the table: the next one for each reason and state.
using FormAfter = std::map<std::pair<FormReason, FormState>, FormState>;

constexpr std::array kReasons = {FormReason::kPolicy, FormReason::kOffload, FormReason::kRoom, FormReason::kRoomOnHost};

// The same next state for every reason.
FormAfter for_any_reason(std::initializer_list<FormState> states, FormState next) {
  FormAfter after;
  for (const FormReason reason : kReasons) {
    for (const FormState state : states) {
      after[{reason, state}] = next;
    }
  }
  return after;
}

void expect_form_row(FormChange change, const FormAfter& after) {
  for (const FormReason reason : kReasons) {
    using enum FormState;
    for (const FormState state : {kNotMade, kBeingMade, kBeside, kAlone}) {
      const auto found = after.find({reason, state});
      const std::optional<FormState> expected = found != after.end() ? std::optional(found->second) : std::nullopt;
      EXPECT_TRUE(form_state_after(state, reason, change) == expected)
          << "change " << static_cast<int>(change) << ", reason " << static_cast<int>(reason) << ", state "
          << static_cast<int>(state);
    }
  }
}

TEST(FormStateTest, WhatIsToBeSavedInAFormBeginsToBePackedOnce) {
  expect_form_row(FormChange::kBeginPacking, {{{FormReason::kPolicy, FormState::kNotMade}, FormState::kBeingMade},
                                              {{FormReason::kOffload, FormState::kNotMade}, FormState::kBeingMade}});
}

TEST(FormStateTest, PackingEndsWhereItHasBegun) {
  expect_form_row(FormChange::kEndPacking, {{{FormReason::kPolicy, FormState::kBeingMade}, FormState::kNotMade},
                                            {{FormReason::kOffload, FormState::kBeingMade}, FormState::kNotMade}});
}

TEST(FormStateTest, OnlyACopyOnTheHostForRoomIsPutBesideTheStorage) {
  expect_form_row(FormChange::kPutBeside, {{{FormReason::kRoomOnHost, FormState::kNotMade}, FormState::kBeside}});
}

TEST(FormStateTest, WhatIsNotMadeYetOrIsBesideTheStorageTakesItsPlace) {
  expect_form_row(FormChange::kHoldAlone, for_any_reason({FormState::kNotMade, FormState::kBeside}, FormState::kAlone));
}

TEST(FormStateTest, WhatIsMadeCanBeThrownAway) {
  expect_form_row(FormChange::kThrowAway, for_any_reason({FormState::kBeside, FormState::kAlone}, FormState::kNotMade));
}

TEST(FormStateTest, TheRowsStandInTheOrderOfTheChanges) {
  for (size_t i = 0; i < kFormTable.size(); ++i) {
    EXPECT_EQ(static_cast<size_t>(kFormTable[i].change), i);
  }
}

}  // namespace
}  // namespace ac2::internal

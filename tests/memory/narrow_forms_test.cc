// When a budget packs a value into a narrower form instead of dropping it, and what the evictor makes of such values.
#include "ac2/internal/eviction/narrow_forms.h"

#include <vector>

#include "ac2/internal/eviction/evictor.h"
#include "gtest/gtest.h"

namespace ac2::internal {
namespace {

constexpr int64_t kBytes = 100;

// An evictor whose values may all be narrowed, to a quarter, at a cost of 100 for 100 bytes.
struct Program {
  explicit Program(bool knows_cost = true) {
    if (knows_cost) forms.expect(kBytes, kBytes / 4, 100);
  }

  ValueId run(double cost, const std::vector<ValueId>& inputs) {
    evictor.ran(cost);
    const ValueId result = evictor.add_result(evictor.add_node(cost, inputs), kBytes, Retention::kPreferSave);
    evictor.set_place(result, Place::kHeld);
    evictor.add_hook(result);
    forms.may_narrow(result);
    return result;
  }
  void narrow(ValueId value) {
    evictor.set_place(value, Place::kNarrowed, kBytes / 4);
    forms.narrowed(value, kBytes / 4, 100);
  }

  Evictor evictor{{.budget = 10'000, .narrowing = &forms}};
  NarrowForms forms{evictor};
  const ValueId input = evictor.add_outside(10, Place::kElsewhere);
};

TEST(NarrowFormsTest, AFormIsBetterWhereItCostsLessForTheBytesThatItFrees) {
  Program program;
  // A form frees three quarters, so it counts as 133.
  const ValueId cheap = program.run(130, {program.input});
  const ValueId dear = program.run(140, {program.input});
  EXPECT_FALSE(program.forms.is_better_than_dropping(cheap));
  EXPECT_TRUE(program.forms.is_better_than_dropping(dear));
}

TEST(NarrowFormsTest, WhereNothingIsKnownTheFirstVictimGetsAForm) {
  Program program(/*knows_cost=*/false);
  const ValueId first = program.run(1, {program.input});
  const ValueId second = program.run(1, {program.input});
  EXPECT_TRUE(program.forms.is_better_than_dropping(first));
  program.narrow(first);
  EXPECT_FALSE(program.forms.is_better_than_dropping(second));
}

TEST(NarrowFormsTest, AValueThatNothingNeedsGetsNone) {
  Program program;
  const ValueId value = program.run(1000, {program.input});
  program.evictor.remove_hook(value);
  EXPECT_FALSE(program.forms.is_better_than_dropping(value));
}

TEST(NarrowFormsTest, AValueThatMayNotBeNarrowedIsDropped) {
  Program program;
  const ValueId value = program.run(1000, {program.input});
  program.forms.forget(value);
  EXPECT_FALSE(program.forms.is_better_than_dropping(value));
}

TEST(NarrowFormsTest, TheBytesOfAFormCountAndAreFreedWhenItIsDropped) {
  Program program;
  const ValueId value = program.run(1000, {program.input});
  EXPECT_EQ(program.evictor.held_bytes(), kBytes);
  program.narrow(value);
  EXPECT_EQ(program.evictor.held_bytes(), kBytes / 4);
  EXPECT_EQ(program.evictor.next_victim(), value);
  EXPECT_TRUE(program.evictor.may_drop(value));
  program.evictor.set_place(value, Place::kNowhere);
  EXPECT_EQ(program.evictor.held_bytes(), 0);
}

TEST(NarrowFormsTest, AValueWithItsBytesAndAFormCountsForBothAndGoesFirst) {
  Program program;
  const ValueId doubled = program.run(1000, {program.input});
  const ValueId held = program.run(1000, {program.input});
  program.narrow(doubled);
  program.evictor.set_place(doubled, Place::kHeld, kBytes / 4);
  EXPECT_EQ(program.evictor.held_bytes(), 2 * kBytes + kBytes / 4);
  // Unpacking it again costs a quarter of packing and unpacking.
  EXPECT_EQ(program.evictor.next_victim(), doubled);
  program.evictor.set_place(doubled, Place::kNarrowed, kBytes / 4);
  EXPECT_EQ(program.evictor.held_bytes(), kBytes + kBytes / 4);
  // To free a byte, a form of the one that is held costs less than to compute the other again.
  EXPECT_EQ(program.evictor.next_victim(), held);
}

TEST(NarrowFormsTest, AFormWithoutBytesIsNoVictim) {
  Program program;
  const ValueId value = program.run(1000, {program.input});
  program.evictor.set_place(value, Place::kNarrowed, 0);
  program.forms.narrowed(value, 0, 100);
  EXPECT_EQ(program.evictor.held_bytes(), 0);
  EXPECT_EQ(program.evictor.next_victim(), kNoId);
}

TEST(NarrowFormsTest, APinnedFormStays) {
  Program program;
  const ValueId value = program.run(1000, {program.input});
  program.narrow(value);
  program.evictor.pin(value);
  EXPECT_EQ(program.evictor.next_victim(), kNoId);
  EXPECT_EQ(program.evictor.unevictable_bytes(), kBytes / 4);
  program.evictor.unpin(value);
  EXPECT_EQ(program.evictor.next_victim(), value);
}

}  // namespace
}  // namespace ac2::internal

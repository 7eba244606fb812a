// When a budget packs a value instead of dropping it, in which form, and what the evictor makes of such values.
#include "ac2/internal/eviction/packing_forms.h"

#include <vector>

#include "ac2/internal/eviction/evictor.h"
#include "gtest/gtest.h"

namespace ac2::internal {
namespace {

constexpr int64_t kBytes = 100;

constexpr uint8_t kQuarter = 0, kEighth = 1;
constexpr FormCosts::Packed kInQuarter = {.bytes = kBytes / 4, .pack_cost = 75, .unpack_cost = 25};

// An evictor whose values may all be packed, to a quarter, at a cost of 100 for 100 bytes.
struct Program {
  explicit Program(bool knows_cost = true) {
    evictor.consult({.packing = &forms});
    if (knows_cost) costs.expect(kQuarter, kBytes, kInQuarter);
  }

  ValueId run(double cost, const std::vector<ValueId>& inputs) {
    evictor.ran(cost);
    const ValueId result = evictor.add_result(evictor.add_node(cost, inputs), kBytes, Retention::kPreferSave);
    evictor.set_place(result, Place::kHeld);
    evictor.add_hook(result);
    forms.may_pack(result, PackingForms::bit(kQuarter));
    return result;
  }
  void pack(ValueId value) {
    evictor.set_place(value, Place::kPacked, kBytes / 4);
    forms.packed(value, kQuarter, kInQuarter);
  }
  bool packs(ValueId value) { return forms.better_than_dropping(value).has_value(); }

  Evictor evictor{{.budget = 10'000}};
  FormCosts costs;
  PackingForms forms{evictor, costs};
  const ValueId input = evictor.add_outside(10, Place::kElsewhere);
};

TEST(PackingFormsTest, AFormIsBetterWhereItCostsLessForTheBytesThatItFrees) {
  Program program;
  // A form frees three quarters, so it counts as 133.
  const ValueId cheap = program.run(130, {program.input});
  const ValueId dear = program.run(140, {program.input});
  EXPECT_FALSE(program.packs(cheap));
  EXPECT_TRUE(program.packs(dear));
}

TEST(PackingFormsTest, WhereNothingIsKnownTheFirstVictimGetsAForm) {
  Program program(/*knows_cost=*/false);
  const ValueId first = program.run(1, {program.input});
  const ValueId second = program.run(1, {program.input});
  EXPECT_TRUE(program.packs(first));
  program.pack(first);
  EXPECT_FALSE(program.packs(second));
}

TEST(PackingFormsTest, AValueThatNothingNeedsGetsNone) {
  Program program;
  const ValueId value = program.run(1000, {program.input});
  program.evictor.remove_hook(value);
  EXPECT_FALSE(program.packs(value));
}

TEST(PackingFormsTest, AValueThatMayNotBePackedIsDropped) {
  Program program;
  const ValueId value = program.run(1000, {program.input});
  program.forms.forget(value);
  EXPECT_FALSE(program.packs(value));
}

TEST(PackingFormsTest, TheBytesOfAFormCountAndAreFreedWhenItIsDropped) {
  Program program;
  const ValueId value = program.run(1000, {program.input});
  EXPECT_EQ(program.evictor.held_bytes(), kBytes);
  program.pack(value);
  EXPECT_EQ(program.evictor.held_bytes(), kBytes / 4);
  EXPECT_EQ(program.evictor.next_victim(), value);
  EXPECT_TRUE(program.evictor.may_drop(value));
  program.evictor.set_place(value, Place::kNowhere);
  EXPECT_EQ(program.evictor.held_bytes(), 0);
}

TEST(PackingFormsTest, AValueWithItsBytesAndAFormCountsForBothAndGoesFirst) {
  Program program;
  const ValueId doubled = program.run(1000, {program.input});
  const ValueId held = program.run(1000, {program.input});
  program.pack(doubled);
  program.evictor.set_place(doubled, Place::kHeld, kBytes / 4);
  EXPECT_EQ(program.evictor.held_bytes(), 2 * kBytes + kBytes / 4);
  // Unpacking it again costs a quarter of packing and unpacking.
  EXPECT_EQ(program.evictor.next_victim(), doubled);
  program.evictor.set_place(doubled, Place::kPacked, kBytes / 4);
  EXPECT_EQ(program.evictor.held_bytes(), kBytes + kBytes / 4);
  // To free a byte, a form of the one that is held costs less than to compute the other again.
  EXPECT_EQ(program.evictor.next_victim(), held);
}

TEST(PackingFormsTest, AFormWithoutBytesIsNoVictim) {
  Program program;
  const ValueId value = program.run(1000, {program.input});
  program.evictor.set_place(value, Place::kPacked, 0);
  program.forms.packed(value, kQuarter, {.pack_cost = 75, .unpack_cost = 25});
  EXPECT_EQ(program.evictor.held_bytes(), 0);
  EXPECT_EQ(program.evictor.next_victim(), kNoId);
}

TEST(PackingFormsTest, OfSeveralFormsTheOneThatCostsLeastForTheBytesIsChosen) {
  Program program;
  const ValueId value = program.run(1000, {program.input});
  program.forms.may_pack(value, PackingForms::bit(kQuarter) | PackingForms::bit(kEighth));
  // 100 for three quarters beside 110 for seven eighths.
  program.costs.expect(kEighth, kBytes, {.bytes = kBytes / 8, .pack_cost = 80, .unpack_cost = 30});
  EXPECT_EQ(program.forms.better_than_dropping(value), kEighth);
  program.forms.refused(value, kEighth);
  EXPECT_EQ(program.forms.better_than_dropping(value), kQuarter);
  program.forms.refused(value, kQuarter);
  EXPECT_FALSE(program.packs(value));
}

TEST(PackingFormsTest, AFormOfWhichNothingIsKnownIsTriedFirst) {
  Program program;
  const ValueId value = program.run(1, {program.input});
  program.forms.may_pack(value, PackingForms::bit(kQuarter) | PackingForms::bit(kEighth));
  EXPECT_EQ(program.forms.better_than_dropping(value), kEighth);
}

TEST(PackingFormsTest, APinnedFormStays) {
  Program program;
  const ValueId value = program.run(1000, {program.input});
  program.pack(value);
  program.evictor.pin(value);
  EXPECT_EQ(program.evictor.next_victim(), kNoId);
  EXPECT_EQ(program.evictor.unevictable_bytes(), kBytes / 4);
  program.evictor.unpin(value);
  EXPECT_EQ(program.evictor.next_victim(), value);
}

}  // namespace
}  // namespace ac2::internal

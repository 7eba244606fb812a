// Numbers of bytes as numbers and as texts, wherever one is taken.
#include "ac2/bytes.h"

#include <cstdint>
#include <string>
#include <string_view>

#include "ac2/in_chunks.h"
#include "ac2/plan.h"
#include "ac2/scope.h"
#include "tests/support/regions.h"

namespace ac2::test {
namespace {

using namespace ac2::literals;

class BytesTest : public CleanTest {};

int64_t count_of(Bytes bytes) {
  return bytes.count();
}

TEST_F(BytesTest, AreANumberOrAText) {
  EXPECT_EQ(count_of(0), 0);
  EXPECT_EQ(count_of(64 << 10), 64 * KiB);
  EXPECT_EQ(count_of(size_t{3}), 3);
  EXPECT_EQ(count_of(2_GiB), int64_t{1} << 31);
  EXPECT_EQ(count_of("65536"), 65536);
  EXPECT_EQ(count_of("1.5 GiB"), 3 * GiB / 2);
  EXPECT_EQ(count_of(std::string("64MiB")), 64_MiB);
  EXPECT_EQ(count_of(std::string_view("64KiB")), 64_KiB);
}

TEST_F(BytesTest, ATextThatIsNoNumberOfBytesIsAnErrorThatSaysWhatIsOne) {
  for (const char* text : {"", "GiB", "2GB", "2 gib", "1e9", "2GiBs", "lots"}) {
    expect_error([&] { count_of(text); },
                 {"A number of bytes is \"", text, "KiB, MiB, GiB and TiB (powers of 1024), such as \"64MiB\""});
  }
  for (const char* text : {"0", "0.0GiB", "9223372036854775808", "9000000TiB"}) {
    expect_error([&] { count_of(text); }, {"A number of bytes is \"", text, "a positive number of bytes, below 2**63"});
  }
  const char* const unset = nullptr;
  expect_error([&] { count_of(unset); }, {"A number of bytes is \"\""});
}

TEST_F(BytesTest, BudgetsScopesAndPlansTakeTexts) {
  EXPECT_EQ(MemoryBudget("1MiB").bytes(), 1_MiB);
  EXPECT_EQ(MemoryBudget::soft("1MiB").bytes(), 1_MiB);
  EXPECT_EQ(MemoryBudget::peak("1TiB").bytes(), int64_t{1} << 40);
  const std::string flag = "2KiB";
  const ScopeOptions options{.memory_budget = flag};
  EXPECT_EQ(options.memory_budget.budget()->bytes(), 2_KiB);
  expect_error([] { ScopeOptions{.memory_budget = "2KB"}; }, {"A number of bytes is \"2KB\""});

  const at::Tensor x = sample({64});
  StepPlanner planner([&] { x.sin().cos().sin().sum().backward(); }, {.recording_budget = "1MiB"});
  EXPECT_EQ(planner.plan("4KiB").summary().peak_bytes, planner.plan(4096).summary().peak_bytes);
  EXPECT_EQ(planner.budget("4KiB").peak_bytes, planner.budget(4096).peak_bytes);
  EXPECT_THROW(planner.plan(0), c10::Error);

  const auto doubled = [](const at::Tensor& rows) { return rows * 2; };
  EXPECT_TRUE(same_bits(in_chunks(doubled, {x}, {.bytes = "64KiB"}), x * 2));
}

}  // namespace
}  // namespace ac2::test

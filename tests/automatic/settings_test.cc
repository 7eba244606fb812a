// What options and variables of the environment say, and the errors for those that say nothing.
#include "ac2/internal/automatic/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <map>
#include <stdexcept>
#include <string>

#include "ac2/internal/bytes/parse_bytes.h"

namespace ac2::internal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using ::testing::ThrowsMessage;
using Kind = BudgetSetting::Kind;

AutomaticSettings settings_in(const std::map<std::string, std::string>& variables) {
  return settings_of([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

template <class Call>
void expect_rejected(Call call, const std::string& name, const std::string& text, const std::string& expected) {
  EXPECT_THAT(call, ThrowsMessage<std::invalid_argument>(
                        AllOf(StartsWith(name + " is \"" + text + "\"; expected"), HasSubstr(expected))));
}

TEST(SettingsTest, TakesBytesWithAndWithoutAUnit) {
  EXPECT_EQ(parse_bytes("65536", "x"), 65536);
  EXPECT_EQ(parse_bytes("64KiB", "x"), 64 << 10);
  EXPECT_EQ(parse_bytes("64MiB", "x"), 64 << 20);
  EXPECT_EQ(parse_bytes(" 1.5 GiB ", "x"), int64_t{3} << 29);
  EXPECT_EQ(parse_bytes("2TiB", "x"), int64_t{2} << 40);
  EXPECT_EQ(parse_bytes("9223372036854775807", "x"), std::numeric_limits<int64_t>::max());
}

TEST(SettingsTest, RejectsWhatIsNoNumberOfBytes) {
  for (const char* text : {"", "MiB", "-1", "64MB", "64mib", "1.GiB", ".5GiB", "1.5.5GiB", "1e9", "64MiB 1", "0x10"}) {
    expect_rejected([&] { parse_bytes(text, "memory_budget"); }, "memory_budget", text, "such as \"64MiB\"");
  }
  for (const char* text : {"0", "0.0GiB", "0.1", "9223372036854775808", "8388608TiB", "8388608.5TiB"}) {
    expect_rejected([&] { parse_bytes(text, "memory_budget"); }, "memory_budget", text, "positive");
  }
}

TEST(SettingsTest, TakesTheFourKindsOfABudget) {
  EXPECT_EQ(parse_budget("auto", "x"), (BudgetSetting{Kind::kWhateverFits, 0}));
  EXPECT_EQ(parse_budget("8GiB", "x"), (BudgetSetting{Kind::kStrict, int64_t{8} << 30}));
  EXPECT_EQ(parse_budget("peak:20GiB", "x"), (BudgetSetting{Kind::kPeak, int64_t{20} << 30}));
  EXPECT_EQ(parse_budget("soft:1GiB", "x"), (BudgetSetting{Kind::kSoft, int64_t{1} << 30}));
}

TEST(SettingsTest, RejectsABudgetOfNoKind) {
  expect_rejected([] { parse_budget("all", "--memory-budget"); }, "--memory-budget", "all", "\"auto\"");
  expect_rejected([] { parse_budget("hard:1GiB", "--memory-budget"); }, "--memory-budget", "hard:1GiB", "\"peak:\"");
  expect_rejected([] { parse_budget("peak:", "--memory-budget"); }, "--memory-budget", "", "number of bytes");
  expect_rejected([] { parse_budget("soft:1GB", "--memory-budget"); }, "--memory-budget", "1GB", "MiB");
}

TEST(SettingsTest, ReadsTheEnvironment) {
  EXPECT_EQ(settings_in({}), AutomaticSettings());
  EXPECT_EQ(settings_in({{"AC2_MEMORY_BUDGET", "peak:1GiB"},
                         {"AC2_POLICY", "speed"},
                         {"AC2_FORMS", "one_bit"},
                         {"AC2_REPORT", "page.html"},
                         {"AC2_VERIFY", "1"},
                         {"AC2_QUIET", "1"}}),
            (AutomaticSettings{.budget = BudgetSetting{Kind::kPeak, int64_t{1} << 30},
                               .budget_text = "peak:1GiB",
                               .policy = "speed",
                               .forms = "one_bit",
                               .report = "page.html",
                               .verify = true,
                               .quiet = true}));
}

TEST(SettingsTest, TakesAnEmptyVariableForNone) {
  EXPECT_EQ(settings_in({{"AC2_MEMORY_BUDGET", ""}, {"AC2_POLICY", ""}, {"AC2_VERIFY", ""}, {"AC2_QUIET", "0"}}),
            AutomaticSettings());
}

TEST(SettingsTest, LeavesAPolicyAloneToDecideByItself) {
  EXPECT_EQ(settings_in({{"AC2_POLICY", "speed"}}).budget, std::nullopt);
  EXPECT_EQ(settings_in({{"AC2_POLICY", "speed"}, {"AC2_MEMORY_BUDGET", "auto"}}).budget, BudgetSetting{});
}

TEST(SettingsTest, KnowsTheBudgetAsItWasGiven) {
  EXPECT_EQ(settings_in({}).budget_text, "auto");
  EXPECT_EQ(settings_in({{"AC2_MEMORY_BUDGET", " 1.5 GiB "}}).budget_text, "1.5 GiB");
  EXPECT_EQ(settings_in({{"AC2_POLICY", "speed"}}).budget_text, "");
}

TEST(SettingsTest, ModelsCostsInAJobOfSeveralProcesses) {
  EXPECT_FALSE(settings_in({{"WORLD_SIZE", "1"}}).modelled_costs);
  EXPECT_FALSE(settings_in({{"WORLD_SIZE", "many"}}).modelled_costs);
  const AutomaticSettings second = settings_in({{"WORLD_SIZE", "2"}, {"RANK", "1"}});
  EXPECT_TRUE(second.modelled_costs);
  EXPECT_EQ(second.rank, 1);
}

TEST(SettingsTest, NamesTheVariableThatIsWrong) {
  expect_rejected([] { settings_in({{"AC2_MEMORY_BUDGET", "8GB"}}); }, "AC2_MEMORY_BUDGET", "8GB", "GiB");
  expect_rejected([] { settings_in({{"AC2_VERIFY", "yes"}}); }, "AC2_VERIFY", "yes", "1 or 0");
  expect_rejected([] { settings_in({{"AC2_QUIET", "true"}}); }, "AC2_QUIET", "true", "1 or 0");
}

}  // namespace
}  // namespace ac2::internal

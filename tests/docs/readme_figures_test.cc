// README.md repeats figures of benchmarks/README.md, which has them with their commands: they must be the same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <regex>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tests/docs/page_code.h"

namespace ac2::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

using Row = std::map<std::string, std::string>;  // by the name of the column
using Table = std::map<std::string, Row>;        // by the first cell

Strings cells_of(const std::string& line) {
  Strings cells = absl::StrSplit(line, '|');
  for (std::string& cell : cells) absl::StripAsciiWhitespace(&cell);
  return Strings(cells.begin() + 1, cells.end() - 1);
}

// The first table after `place`, whose first column is `key`. Empty if there is none.
Table table_after(const std::string& page, const std::string& place, const std::string& key) {
  Table table;
  const size_t begin = page.find(place);
  if (begin == std::string::npos) return table;
  Strings head;
  for (const std::string& line : lines_of(page.substr(begin))) {
    if (!absl::StartsWith(line, "|")) {
      if (!head.empty()) break;
      continue;
    }
    const Strings cells = cells_of(line);
    if (head.empty()) {
      if (cells.at(0) != key) return table;
      head = cells;
      continue;
    }
    if (absl::StartsWith(cells.at(0), "--")) continue;
    for (size_t i = 0; i < cells.size() && i < head.size(); ++i) table[cells[0]][head[i]] = cells[i];
  }
  return table;
}

// Without what stands in brackets behind it: "1.261 (1.248 to 1.268)" is "1.261".
std::string figure(const std::string& cell) {
  return cell.substr(0, cell.find(" ("));
}

constexpr const char* kPeersInReadme = "## Beside `torch.utils.checkpoint`";
constexpr const char* kPeersInBenchmarks = "Step time over the plain one of the same language";
constexpr const char* kStep = "## Training step: `gpt_benchmark`";
constexpr const char* kBudgets = "## Training step under a memory budget";

// The differences of the tables beside torch.utils.checkpoint, a line each.
Strings differences_beside_peers(const std::string& readme, const std::string& benchmarks) {
  const Table here = table_after(readme, kPeersInReadme, "model");
  const Table there = table_after(benchmarks, kPeersInBenchmarks, "model");
  Strings differences;
  if (here.empty() || there.empty()) differences.push_back("a page has no table of models");
  for (const auto& [model, row] : there) {
    if (!here.contains(model)) differences.push_back(model + " is missing in README.md");
  }
  for (const auto& [model, row] : here) {
    if (!there.contains(model)) {
      differences.push_back(model + " is missing in benchmarks/README.md");
      continue;
    }
    for (const auto& [column, cell] : row) {
      const Row& measured = there.at(model);
      const std::string wanted = measured.contains(column) ? figure(measured.at(column)) : "no such column";
      if (cell != wanted) differences.push_back(absl::StrCat(model, ", ", column, ": ", cell, ", not ", wanted));
    }
  }
  return differences;
}

// README.md says "in 80 MiB at 1.033", several times.
Strings differences_of_budgets(const std::string& readme, const std::string& benchmarks) {
  const Table measured = table_after(benchmarks, kBudgets, "budget");
  const std::regex claim("in\\s+([0-9]+ MiB)\\s+at\\s+([0-9.]+[0-9])");
  Strings differences;
  std::sregex_iterator found(readme.begin(), readme.end(), claim);
  if (found == std::sregex_iterator()) differences.push_back("README.md has no budgets");
  for (; found != std::sregex_iterator(); ++found) {
    const std::string budget = (*found)[1], time = (*found)[2];
    const std::string wanted =
        measured.contains(budget) ? measured.at(budget).at("step time / none") : "no such budget";
    if (time != wanted) differences.push_back(absl::StrCat(budget, ": ", time, ", not ", wanted));
  }
  return differences;
}

const std::string& readme() {
  static const std::string text = read_file("README.md");
  return text;
}

const std::string& benchmarks() {
  static const std::string text = read_file("benchmarks/README.md");
  return text;
}

TEST(ReadmeFiguresTest, BesidePeersTheyAreThoseOfTheBenchmarks) {
  const Strings differences = differences_beside_peers(readme(), benchmarks());
  EXPECT_THAT(differences, IsEmpty()) << absl::StrJoin(differences, "\n");
}

TEST(ReadmeFiguresTest, BesidePeersAllModelsAndFourFormsAreCompared) {
  const Table table = table_after(readme(), kPeersInReadme, "model");
  EXPECT_THAT(table, SizeIs(6));
  for (const auto& [model, row] : table) EXPECT_THAT(row, SizeIs(5)) << model;
}

TEST(ReadmeFiguresTest, UnderBudgetsTheyAreThoseOfTheBenchmarks) {
  const Strings differences = differences_of_budgets(readme(), benchmarks());
  EXPECT_THAT(differences, IsEmpty()) << absl::StrJoin(differences, "\n");
}

TEST(ReadmeFiguresTest, OfLargerBlocksItIsThatOfTheBenchmarks) {
  const Table step = table_after(benchmarks(), kStep, "policy");
  ASSERT_TRUE(step.contains("save_compute_intensive"));
  const double ratio = std::atof(step.at("save_compute_intensive").at("/ none").c_str());
  char percent[32];
  std::snprintf(percent, sizeof(percent), "%.1f %%", 100 * (ratio - 1));
  EXPECT_THAT(readme(), HasSubstr(absl::StrCat("take ", percent, " longer")));
}

TEST(ReadmeFiguresTest, ADifferenceIsNamed) {
  const std::string mine = absl::StrCat(kPeersInReadme, "\n\n| model | a | b |\n|---|---:|---:|\n");
  const std::string theirs = absl::StrCat(kPeersInBenchmarks, ":\n\n| model | a | c |\n|---|---:|---:|\n");
  EXPECT_THAT(differences_beside_peers(mine + "| gpt | 1.2 | 1.3 |\n", theirs + "| gpt | 1.25 (1.2 to 1.3) | 1.3 |\n"),
              ElementsAre("gpt, a: 1.2, not 1.25", "gpt, b: 1.3, not no such column"));
  EXPECT_THAT(differences_beside_peers(mine + "| gpt | 1.2 |\n", theirs + "| gpt | 1.2 (1 to 2) |\n| tree | 1 |\n"),
              ElementsAre("tree is missing in README.md"));
  EXPECT_THAT(differences_beside_peers(mine + "| gpt | 1.2 |\n", "| model |\n"),
              ElementsAre("a page has no table of models", "gpt is missing in benchmarks/README.md"));
}

TEST(ReadmeFiguresTest, ADifferenceUnderABudgetIsNamed) {
  const std::string measured =
      absl::StrCat(kBudgets, "\n\n| budget | step time / none |\n|---:|---:|\n| 8 MiB | 1.1 |\n");
  EXPECT_THAT(differences_of_budgets("trains in\n8 MiB at 1.2, in 4 MiB at 1.3.", measured),
              ElementsAre("8 MiB: 1.2, not 1.1", "4 MiB: 1.3, not no such budget"));
  EXPECT_THAT(differences_of_budgets("in 8 MiB at 1.1.", measured), IsEmpty());
  EXPECT_THAT(differences_of_budgets("", measured), ElementsAre("README.md has no budgets"));
}

}  // namespace
}  // namespace ac2::test

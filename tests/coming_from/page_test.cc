// docs/coming_from.md is what the tests compile and run: each row's code must be in a test of its section's file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tests/docs/page_code.h"

namespace ac2::test {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using ReadFile = std::function<std::string(const std::string& path)>;

// What the tests of a file run: without comments, white space, and what precedes the first test.
std::string code_of_tests(const std::string& source) {
  const std::string code = without_comments(source);
  const size_t first = code.find("TEST_F(");
  return first == std::string::npos ? "" : without_space(code.substr(first));
}

struct Row {
  std::string line, theirs, ours, remarks;
};

struct Section {
  std::string name;
  std::string test_file = {};
  std::vector<Row> rows = {};
};

// Sections are "## name"; the file is in "Tests: [path](…)"; rows are what follows a table's head. What is not
// understood goes to `problems`.
std::vector<Section> sections_of(const std::string& page, Strings& problems) {
  std::vector<Section> sections;
  for (const std::string& line : lines_of(page)) {
    if (absl::StartsWith(line, "## ")) sections.push_back({.name = line.substr(3)});
    if (sections.empty()) continue;
    Section& section = sections.back();
    if (absl::StartsWith(line, "Tests: [")) section.test_file = line.substr(8, line.find(']') - 8);
    if (!absl::StartsWith(line, "|") || absl::StartsWith(line, "|---")) continue;
    Strings cells = absl::StrSplit(line, '|');
    for (std::string& cell : cells) absl::StripAsciiWhitespace(&cell);
    if (cells.size() != 5 || !cells[4].empty()) {
      problems.push_back("not three cells: " + line);
    } else if (cells[2] != "ours") {
      section.rows.push_back({line, cells[1], cells[2], cells[3]});
    } else if (cells[3] != "remarks") {
      problems.push_back("not a head of our tables: " + line);
    }
  }
  return sections;
}

// Of each code the page has in this section, how many rows have it.
std::map<std::string, size_t> codes_of(const Section& section, Strings& problems) {
  std::map<std::string, size_t> rows_with;
  for (const Row& row : section.rows) {
    const Strings codes = code_spans(row.ours);
    const bool none = absl::StartsWith(row.ours, "none: ");
    if (code_spans(row.theirs).empty()) problems.push_back("nothing of theirs in: " + row.line);
    if (none && !codes.empty()) problems.push_back("\"none\" with code in: " + row.line);
    if (!none && codes.empty()) problems.push_back("neither code nor \"none: \" and why in: " + row.line);
    for (const std::string& code : codes) ++rows_with[code];
    for (const std::string& code : code_spans(row.remarks)) {
      if (absl::StrContains(code, "ac2::")) ++rows_with[code];
    }
  }
  return rows_with;
}

// What is wrong with the page, a line each. `read` returns a file's text, or "" if there is none.
Strings problems_of(const std::string& page, const ReadFile& read) {
  Strings problems;
  for (const Section& section : sections_of(page, problems)) {
    if (section.rows.empty()) {
      problems.push_back("no rows in: " + section.name);
      continue;
    }
    const std::string tests = section.test_file.empty() ? "" : code_of_tests(read(section.test_file));
    if (tests.empty()) problems.push_back(absl::StrCat("no tests at \"", section.test_file, "\" of: ", section.name));
    for (const auto& [code, rows] : codes_of(section, problems)) {
      const size_t found = occurrences(tests, without_space(code));
      if (found < rows) {
        problems.push_back(
            absl::StrCat(section.test_file, " has ", found, " of ", rows, " of ", section.name, ": ", code));
      }
    }
  }
  return problems;
}

constexpr const char* kHead = "## One\n\nTests: [one_test.cc](x)\n\n| theirs | ours | remarks |\n|---|---|---|\n";

Strings problems_of_rows(const std::string& rows, const std::string& source) {
  return problems_of(kHead + rows, [&](const std::string& path) { return path == "one_test.cc" ? source : ""; });
}

TEST(ComingFromPageTest, EachRowIsInATestOfItsSection) {
  const Strings problems = problems_of(read_file("docs/coming_from.md"), read_file);
  EXPECT_THAT(problems, IsEmpty()) << absl::StrJoin(problems, "\n");
}

TEST(ComingFromPageTest, HasRowsForEachFramework) {
  Strings problems;
  Strings names;
  for (const Section& section : sections_of(read_file("docs/coming_from.md"), problems)) {
    names.push_back(section.name);
    EXPECT_GE(section.rows.size(), 4u) << section.name;
  }
  EXPECT_THAT(names, ElementsAre("torch.utils.checkpoint", "Selective policies of torch.utils.checkpoint",
                                 "Saved-tensor hooks and memory budgets of PyTorch", "The Python AC2", "fairscale",
                                 "DeepSpeed", "JAX and Flax", "MindSpore", "OneFlow"));
}

TEST(ComingFromPageTest, CodeMayBeBrokenIntoLinesInTheTest) {
  EXPECT_THAT(problems_of_rows("| `a` | `f(1, 2);` | |\n", "TEST_F(A, B) {\n  f(1,\n    2);\n}\n"), IsEmpty());
}

TEST(ComingFromPageTest, CodeThatNoTestRunsIsAProblem) {
  const std::string row = "| `a` | `f(1);` | |\n";
  const auto missing = ElementsAre(HasSubstr("one_test.cc has 0 of 1 of One: f(1);"));
  EXPECT_THAT(problems_of_rows(row, "TEST_F(A, B) { f(2); }"), missing);
  EXPECT_THAT(problems_of_rows(row, "TEST_F(A, B) {\n  // f(1);\n}"), missing);
  EXPECT_THAT(problems_of_rows(row, "void g() { f(1); }\nTEST_F(A, B) {}"), missing);
}

TEST(ComingFromPageTest, EachRowWantsCodeOfItsOwn) {
  const std::string rows = "| `a` | `f(1);` | |\n| `b` | `f(1);` | |\n";
  EXPECT_THAT(problems_of_rows(rows, "TEST_F(A, B) { f(1); }"), ElementsAre(HasSubstr("1 of 2")));
  EXPECT_THAT(problems_of_rows(rows, "TEST_F(A, B) { f(1); }\nTEST_F(A, C) { f(1); }"), IsEmpty());
}

TEST(ComingFromPageTest, ARowWithoutCodeSaysNoneAndWhy) {
  const std::string source = "TEST_F(A, B) {}";
  EXPECT_THAT(problems_of_rows("| `a` | none: no such thing | |\n", source), IsEmpty());
  EXPECT_THAT(problems_of_rows("| `a` | as ever | |\n", source), ElementsAre(HasSubstr("neither code nor")));
  EXPECT_THAT(problems_of_rows("| `a` | none | |\n", source), ElementsAre(HasSubstr("neither code nor")));
  EXPECT_THAT(problems_of_rows("| `a` | none: but `f()` | |\n", source), Contains(HasSubstr("\"none\" with code")));
}

TEST(ComingFromPageTest, NamesOfOursInRemarksAreInTheTestToo) {
  EXPECT_THAT(problems_of_rows("| `a` | none: it | see `ac2::g()` |\n", "TEST_F(A, B) {}"),
              ElementsAre(HasSubstr("ac2::g()")));
}

TEST(ComingFromPageTest, WhatIsNoTableOfOursIsAProblem) {
  const std::string source = "TEST_F(A, B) { f(); }";
  EXPECT_THAT(problems_of_rows("| `a` | `f();` |\n", source), Contains(HasSubstr("not three cells")));
  EXPECT_THAT(problems_of_rows("| a | `f();` | |\n", source), Contains(HasSubstr("nothing of theirs")));
  EXPECT_THAT(problems_of("## One\n", read_file), ElementsAre("no rows in: One"));
  EXPECT_THAT(problems_of_rows("| `a` | none: it | |\n", ""), ElementsAre(HasSubstr("no tests at \"one_test.cc\"")));
}

}  // namespace
}  // namespace ac2::test

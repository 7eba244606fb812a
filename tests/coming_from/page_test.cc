// docs/coming_from.md is what the tests compile and run: each entry's code must be in a test of its section's file.
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

// The code of a file's tests: without comments, white space, and what precedes the first test.
std::string code_of_tests(const std::string& source) {
  const std::string code = without_comments(source);
  const size_t first = code.find("TEST_F(");
  return first == std::string::npos ? "" : without_space(code.substr(first));
}

// An entry of a list: the words of a framework, ac2's code for them, and a remark:
//   - `theirs`
//     - `ours`
//     - remarks
struct Entry {
  std::string theirs;
  Strings parts = {};  // ours, and remarks if there are any
};

struct Section {
  std::string name;
  std::string test_file = {};
  std::vector<Entry> entries = {};
};

// The text to which an indented line adds its own: the last part of the section's last entry.
std::string& last_text_of(Section& section) {
  Entry& entry = section.entries.back();
  return entry.parts.empty() ? entry.theirs : entry.parts.back();
}

// Sections are "## name"; the file is in "Tests: [path](…)"; entries are the items of lists. What is not understood
// goes to `problems`.
std::vector<Section> sections_of(const std::string& page, Strings& problems) {
  std::vector<Section> sections;
  for (const std::string& line : lines_of(page)) {
    if (absl::StartsWith(line, "## ")) sections.push_back({.name = line.substr(3)});
    if (sections.empty()) continue;
    Section& section = sections.back();
    if (absl::StartsWith(line, "Tests: [")) section.test_file = line.substr(8, line.find(']') - 8);
    if (absl::StartsWith(line, "|")) problems.push_back("a table, not an entry of a list: " + line);
    if (absl::StartsWith(line, "- ")) {
      section.entries.push_back({.theirs = line.substr(2)});
    } else if (!section.entries.empty() && absl::StartsWith(line, "  - ")) {
      section.entries.back().parts.push_back(line.substr(4));
    } else if (!section.entries.empty() && absl::StartsWith(line, "  ")) {
      absl::StrAppend(&last_text_of(section), " ", absl::StripLeadingAsciiWhitespace(line));
    } else if (absl::StartsWith(line, " ")) {
      problems.push_back("indented, and in no entry: " + line);
    }
  }
  return sections;
}

// Of each code the page has in this section, how many entries have it.
std::map<std::string, size_t> codes_of(const Section& section, Strings& problems) {
  std::map<std::string, size_t> entries_with;
  for (const Entry& entry : section.entries) {
    if (code_spans(entry.theirs).empty()) problems.push_back("nothing of theirs in: " + entry.theirs);
    if (entry.parts.empty() || entry.parts.size() > 2) {
      problems.push_back("not ours, and remarks or none, in: " + entry.theirs);
      continue;
    }
    const std::string& ours = entry.parts[0];
    const Strings codes = code_spans(ours);
    const bool none = absl::StartsWith(ours, "none: ");
    if (none && !codes.empty()) problems.push_back("\"none\" with code in: " + ours);
    if (!none && codes.empty()) problems.push_back("neither code nor \"none: \" and why in: " + ours);
    for (const std::string& code : codes) ++entries_with[code];
    if (entry.parts.size() < 2) continue;
    for (const std::string& code : code_spans(entry.parts[1])) {
      if (absl::StrContains(code, "ac2::")) ++entries_with[code];
    }
  }
  return entries_with;
}

// The mistakes of the page, a line each. `read` returns a file's text, or "" if there is none.
Strings problems_of(const std::string& page, const ReadFile& read) {
  Strings problems;
  for (const Section& section : sections_of(page, problems)) {
    if (section.entries.empty()) {
      problems.push_back("no entries in: " + section.name);
      continue;
    }
    const std::string tests = section.test_file.empty() ? "" : code_of_tests(read(section.test_file));
    if (tests.empty()) problems.push_back(absl::StrCat("no tests at \"", section.test_file, "\" of: ", section.name));
    for (const auto& [code, entries] : codes_of(section, problems)) {
      const size_t found = occurrences(tests, without_space(code));
      if (found < entries) {
        problems.push_back(
            absl::StrCat(section.test_file, " has ", found, " of ", entries, " of ", section.name, ": ", code));
      }
    }
  }
  return problems;
}

constexpr const char* kHead = "## One\n\nTests: [one_test.cc](x)\n\n";

Strings problems_of_entries(const std::string& entries, const std::string& source) {
  return problems_of(kHead + entries, [&](const std::string& path) { return path == "one_test.cc" ? source : ""; });
}

TEST(ComingFromPageTest, EachEntryIsInATestOfItsSection) {
  const Strings problems = problems_of(read_file("docs/coming_from.md"), read_file);
  EXPECT_THAT(problems, IsEmpty()) << absl::StrJoin(problems, "\n");
}

TEST(ComingFromPageTest, HasEntriesForEachFramework) {
  Strings problems;
  Strings names;
  for (const Section& section : sections_of(read_file("docs/coming_from.md"), problems)) {
    names.push_back(section.name);
    EXPECT_GE(section.entries.size(), 4u) << section.name;
  }
  EXPECT_THAT(names, ElementsAre("torch.utils.checkpoint", "Selective policies of torch.utils.checkpoint",
                                 "Saved-tensor hooks and memory budgets of PyTorch", "The Python AC2", "fairscale",
                                 "DeepSpeed", "JAX and Flax", "MindSpore", "PaddlePaddle", "OneFlow"));
}

TEST(ComingFromPageTest, CodeMayBeBrokenIntoLinesInTheTest) {
  EXPECT_THAT(problems_of_entries("- `a`\n  - `f(1, 2);`\n", "TEST_F(A, B) {\n  f(1,\n    2);\n}\n"), IsEmpty());
}

TEST(ComingFromPageTest, AnEntryMayBeBrokenIntoLines) {
  const std::string entry = "- `a` and\n  `b`\n  - `f(1,\n    2);`\n  - Said of\n    `ac2::g`.\n";
  EXPECT_THAT(problems_of_entries(entry, "TEST_F(A, B) { f(1, 2); ac2::g(); }"), IsEmpty());
  EXPECT_THAT(problems_of_entries(entry, "TEST_F(A, B) { f(1); }"),
              ElementsAre(HasSubstr("ac2::g"), HasSubstr("f(1, 2);")));
}

TEST(ComingFromPageTest, CodeThatNoTestRunsIsAProblem) {
  const std::string entry = "- `a`\n  - `f(1);`\n";
  const auto missing = ElementsAre(HasSubstr("one_test.cc has 0 of 1 of One: f(1);"));
  EXPECT_THAT(problems_of_entries(entry, "TEST_F(A, B) { f(2); }"), missing);
  EXPECT_THAT(problems_of_entries(entry, "TEST_F(A, B) {\n  // f(1);\n}"), missing);
  EXPECT_THAT(problems_of_entries(entry, "void g() { f(1); }\nTEST_F(A, B) {}"), missing);
}

TEST(ComingFromPageTest, EachEntryWantsCodeOfItsOwn) {
  const std::string entries = "- `a`\n  - `f(1);`\n- `b`\n  - `f(1);`\n";
  EXPECT_THAT(problems_of_entries(entries, "TEST_F(A, B) { f(1); }"), ElementsAre(HasSubstr("1 of 2")));
  EXPECT_THAT(problems_of_entries(entries, "TEST_F(A, B) { f(1); }\nTEST_F(A, C) { f(1); }"), IsEmpty());
}

TEST(ComingFromPageTest, AnEntryWithoutCodeSaysNoneAndWhy) {
  const std::string source = "TEST_F(A, B) {}";
  EXPECT_THAT(problems_of_entries("- `a`\n  - none: no such thing\n", source), IsEmpty());
  EXPECT_THAT(problems_of_entries("- `a`\n  - as ever\n", source), ElementsAre(HasSubstr("neither code nor")));
  EXPECT_THAT(problems_of_entries("- `a`\n  - none\n", source), ElementsAre(HasSubstr("neither code nor")));
  EXPECT_THAT(problems_of_entries("- `a`\n  - none: but `f()`\n", source), Contains(HasSubstr("\"none\" with code")));
}

TEST(ComingFromPageTest, NamesOfOursInRemarksAreInTheTestToo) {
  EXPECT_THAT(problems_of_entries("- `a`\n  - none: it\n  - see `ac2::g()`\n", "TEST_F(A, B) {}"),
              ElementsAre(HasSubstr("ac2::g()")));
}

TEST(ComingFromPageTest, WhatIsNoEntryOfOursIsAProblem) {
  const std::string source = "TEST_F(A, B) { f(); }";
  EXPECT_THAT(problems_of_entries("- `a`\n", source), ElementsAre(HasSubstr("not ours")));
  EXPECT_THAT(problems_of_entries("- `a`\n  - `f();`\n  - b\n  - c\n", source), ElementsAre(HasSubstr("not ours")));
  EXPECT_THAT(problems_of_entries("- a\n  - `f();`\n", source), ElementsAre(HasSubstr("nothing of theirs")));
  EXPECT_THAT(problems_of_entries("- `a`\n  - `f();`\n| `b` | `f();` | |\n", source),
              ElementsAre(HasSubstr("a table")));
  EXPECT_THAT(problems_of_entries("  - `g();`\n- `a`\n  - `f();`\n", source), ElementsAre(HasSubstr("in no entry")));
  EXPECT_THAT(problems_of_entries("- `a`\n  - `f();`\n - `g();`\n", source), ElementsAre(HasSubstr("in no entry")));
  EXPECT_THAT(problems_of("## One\n", read_file), ElementsAre("no entries in: One"));
  EXPECT_THAT(problems_of_entries("- `a`\n  - none: it\n", ""), ElementsAre(HasSubstr("no tests at \"one_test.cc\"")));
}

}  // namespace
}  // namespace ac2::test

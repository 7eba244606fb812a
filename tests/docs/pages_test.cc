// README.md and docs/guide.md show what tests compile and run: all of their C++ must be in a test of this folder.
//
// Held against the tests are the blocks of C++, and in the text and its tables each `span` that is more than a word of
// C++. Not held against anything are commands (sh), what a user's build files say (cmake, python), and what a program
// prints (blocks without a language).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/docs/page_code.h"

namespace ac2::test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct PageAndTests {
  std::string page;
  Strings tests;
};

const std::vector<PageAndTests>& pages() {
  static const auto& pages = *new std::vector<PageAndTests>{
      {"README.md", {"tests/docs/readme_test.cc"}},
      {"docs/guide.md", {"tests/docs/guide_modules_test.cc", "tests/docs/guide_test.cc"}},
  };
  return pages;
}

const std::set<std::string>& languages_not_compiled() {
  static const auto& languages = *new std::set<std::string>{"", "cmake", "python", "sh"};
  return languages;
}

// Functions of LibTorch that the text speaks of.
const std::set<std::string>& names_of_functions() {
  static const auto& names = *new std::set<std::string>{"backward()", "clone()",         "data_ptr()", "forward()",
                                                        "to()",       "named_modules()", "train()"};
  return names;
}

bool is_code(const std::string& span) {
  if (names_of_functions().count(span) > 0 || absl::StartsWith(span, "./") || absl::StartsWith(span, "--")) {
    return false;
  }
  return span.find_first_of("({;") != std::string::npos || absl::StrContains(span, "ac2::");
}

// The C++ that the page has and the tests have not, a line each. `tests` is their source.
Strings problems_of(const std::string& markdown, const std::string& tests) {
  Strings problems;
  const std::string code = without_space(without_comments(tests));
  const auto expect = [&](const std::string& part) {
    if (!absl::StrContains(code, without_space(part))) problems.push_back("no test has: " + part);
  };
  const Page page = parse_page(markdown);
  for (const CodeBlock& block : page.blocks) {
    if (block.language == "cpp") {
      for (const std::string& part : parts_of(block.code)) expect(part);
    } else if (languages_not_compiled().count(block.language) == 0) {
      problems.push_back(absl::StrCat("a block in \"", block.language, "\", which is not known here: ", block.code));
    }
  }
  for (const std::string& line : page.text) {
    for (const std::string& span : code_spans(line)) {
      if (is_code(span)) expect(span);
    }
  }
  return problems;
}

TEST(PagesTest, AllCodeOfThePagesIsInTheirTests) {
  for (const PageAndTests& page : pages()) {
    std::string tests;
    for (const std::string& path : page.tests) {
      const std::string source = read_file(path);
      EXPECT_FALSE(source.empty()) << path;
      absl::StrAppend(&tests, source, "\n");
    }
    const std::string markdown = read_file(page.page);
    EXPECT_FALSE(parse_page(markdown).blocks.empty()) << page.page;
    const Strings problems = problems_of(markdown, tests);
    EXPECT_THAT(problems, IsEmpty()) << page.page << ":\n" << absl::StrJoin(problems, "\n");
  }
}

TEST(PagesTest, ABlockMayBeIndentedAndExplainedAndBrokenIntoParts) {
  const std::string page = "```cpp\n#include \"a.h\"\n\nf(1, 2);  // said\n\ng();\n```\n";
  EXPECT_THAT(problems_of(page, "#include <x>\n#include \"a.h\"\nTEST(A, B) {\n  f(1,\n    2);\n  h();\n  g();\n}\n"),
              IsEmpty());
}

TEST(PagesTest, ABlockThatNoTestHasIsAProblem) {
  const std::string page = "```cpp\nf(1);\nf(2);\n```\n";
  EXPECT_THAT(problems_of(page, "TEST(A, B) { f(1); }"), ElementsAre(HasSubstr("f(1);\nf(2);")));
  EXPECT_THAT(problems_of(page, "TEST(A, B) { f(1); g(); f(2); }"), ElementsAre(HasSubstr("f(1);\nf(2);")));
  EXPECT_THAT(problems_of(page, "TEST(A, B) {}  // f(1); f(2);"), ElementsAre(HasSubstr("f(1);\nf(2);")));
  EXPECT_THAT(problems_of("```cpp\n#include \"a.h\"\n```\n", "#include \"b.h\""), ElementsAre(HasSubstr("a.h")));
}

TEST(PagesTest, CodeInTheTextAndInTablesCountsToo) {
  EXPECT_THAT(problems_of("Take `f({1})` of `this`.\n| a | `ac2::g` |\n", "f({1});"), ElementsAre(HasSubstr("ac2::g")));
  EXPECT_THAT(problems_of("`./bazelw run //x (y)`, `--flag=a(b)`, `a.h`, `data_ptr()`\n", ""), IsEmpty());
}

TEST(PagesTest, OnlyTheKnownLanguagesAreLeftOut) {
  EXPECT_THAT(problems_of("```sh\nls (1)\n```\n```\nprinted (1)\n```\n", ""), IsEmpty());
  EXPECT_THAT(problems_of("```c++\nf();\n```\n", "f();"), ElementsAre(AllOf(HasSubstr("c++"), HasSubstr("not known"))));
}

}  // namespace
}  // namespace ac2::test

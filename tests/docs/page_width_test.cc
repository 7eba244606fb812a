// No line of a page is longer than 140 columns, so that pages and their changes can be read in a terminal.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/docs/page_code.h"

namespace ac2::test {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr size_t kColumns = 140;

// The folders that have pages.
constexpr const char* kFolders[] = {".", "benchmarks", "docs", "docs/notes", "policies", "third_party/gloo"};

// The paths of the pages in a folder, in alphabetical order.
Strings pages_in(const std::string& folder) {
  Strings pages;
  for (const std::filesystem::directory_entry& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".md") pages.push_back(entry.path().lexically_normal().string());
  }
  std::sort(pages.begin(), pages.end());
  return pages;
}

// How many characters a line of UTF-8 has.
size_t columns_of(const std::string& line) {
  return std::count_if(line.begin(), line.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

// Where the lines are that are too long, each as "page:line: columns".
Strings long_lines_of(const std::string& page, const std::string& text) {
  Strings found;
  size_t number = 0;
  for (const std::string& line : lines_of(text)) {
    ++number;
    const size_t columns = columns_of(line);
    if (columns > kColumns) found.push_back(absl::StrCat(page, ":", number, ": ", columns, " columns"));
  }
  return found;
}

TEST(PageWidthTest, NoLineOfAPageIsLongerThan140Columns) {
  Strings found;
  for (const char* folder : kFolders) {
    const Strings pages = pages_in(folder);
    EXPECT_FALSE(pages.empty()) << folder;
    for (const std::string& page : pages) {
      const std::string text = read_file(page);
      EXPECT_FALSE(text.empty()) << page;
      for (const std::string& line : long_lines_of(page, text)) found.push_back(line);
    }
  }
  EXPECT_THAT(found, IsEmpty()) << absl::StrJoin(found, "\n");
}

TEST(PageWidthTest, AllPagesOfDocsAreLookedAt) {
  const Strings pages = pages_in("docs");
  EXPECT_THAT(pages, Contains("docs/coming_from.md"));
  EXPECT_THAT(pages, Contains("docs/reliability.md"));
  EXPECT_THAT(pages_in("."), Contains("README.md"));
}

TEST(PageWidthTest, ALineThatIsTooLongIsNamedByPageAndLine) {
  const std::string fits(140, 'x');
  EXPECT_THAT(long_lines_of("a.md", fits + "\n" + fits + "\n"), IsEmpty());
  EXPECT_THAT(long_lines_of("a.md", "x\n" + fits + "y\n" + fits + "\n" + fits + "yz"),
              ElementsAre("a.md:2: 141 columns", "a.md:4: 142 columns"));
}

TEST(PageWidthTest, AColumnIsACharacterAndNotAByte) {
  std::string text;
  for (int i = 0; i < 140; ++i) text += "→";
  EXPECT_THAT(long_lines_of("a.md", text), IsEmpty());
  EXPECT_THAT(long_lines_of("a.md", text + "→"), ElementsAre("a.md:1: 141 columns"));
}

}  // namespace
}  // namespace ac2::test

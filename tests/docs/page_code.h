// The code on a page of the documentation, and the code of the tests that run it.
//
// Pages and tests are compared without white space and comments, so that a test may indent and break lines as its own
// code is, and a page may explain what the test asserts.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace ac2::test {

using Strings = std::vector<std::string>;

// The text of a file, or "" if there is none.
std::string read_file(const std::string& path);

Strings lines_of(const std::string& text);
std::string without_space(const std::string& text);
// Without what follows // on each line.
std::string without_comments(const std::string& code);
// How often `part` is in `text`, without overlaps.
size_t occurrences(const std::string& text, const std::string& part);

// The `code` within a line or a cell.
Strings code_spans(const std::string& text);

// The text between two lines of ```.
struct CodeBlock {
  std::string language;  // what follows the first ```; "" if nothing does
  std::string code;
};

struct Page {
  std::vector<CodeBlock> blocks;
  Strings text;  // the lines outside blocks
};
Page parse_page(const std::string& markdown);

// The parts of a block that a test may have apart: each #include, and what stands between empty lines.
Strings parts_of(const std::string& code);

}  // namespace ac2::test

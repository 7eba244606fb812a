#include "tests/docs/page_code.h"

#include <fstream>
#include <sstream>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace ac2::test {

std::string read_file(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

Strings lines_of(const std::string& text) {
  return absl::StrSplit(text, '\n');
}

std::string without_space(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (!absl::ascii_isspace(static_cast<unsigned char>(c))) result += c;
  }
  return result;
}

std::string without_comments(const std::string& code) {
  std::string result;
  for (const std::string& line : lines_of(code)) absl::StrAppend(&result, line.substr(0, line.find("//")), "\n");
  return result;
}

size_t occurrences(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++count;
  return count;
}

Strings code_spans(const std::string& text) {
  const Strings parts = absl::StrSplit(text, '`');
  Strings spans;
  for (size_t i = 1; i < parts.size(); i += 2) spans.push_back(parts[i]);
  return spans;
}

Page parse_page(const std::string& markdown) {
  Page page;
  bool in_block = false;
  for (const std::string& line : lines_of(markdown)) {
    if (absl::StartsWith(line, "```")) {
      in_block = !in_block;
      if (in_block) page.blocks.push_back({.language = line.substr(3), .code = ""});
    } else if (in_block) {
      absl::StrAppend(&page.blocks.back().code, line, "\n");
    } else {
      page.text.push_back(line);
    }
  }
  return page;
}

Strings parts_of(const std::string& code) {
  Strings parts;
  std::string part;
  const auto finish = [&] {
    if (!without_space(part).empty()) parts.push_back(part);
    part.clear();
  };
  for (const std::string& line : lines_of(without_comments(code))) {
    const bool is_include = absl::StartsWith(line, "#include");
    if (is_include || without_space(line).empty()) finish();
    absl::StrAppend(&part, line, "\n");
    if (is_include) finish();
  }
  finish();
  return parts;
}

}  // namespace ac2::test

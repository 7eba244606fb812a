#include "ac2/internal/bytes/parse_bytes.h"

#include <array>
#include <cctype>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

namespace ac2::internal {

namespace {

constexpr std::array<std::pair<std::string_view, int64_t>, 5> kUnits{{
    {"", 1},
    {"KiB", int64_t{1} << 10},
    {"MiB", int64_t{1} << 20},
    {"GiB", int64_t{1} << 30},
    {"TiB", int64_t{1} << 40},
}};
constexpr double kTooMany = 0x1p63;

size_t digits_at_front(std::string_view text) {
  size_t count = 0;
  while (count < text.size() && std::isdigit(static_cast<unsigned char>(text[count])) != 0) {
    ++count;
  }
  return count;
}

// The length of "64" or "1.5" at the beginning, and 0 if there is no such number.
size_t length_of_number(std::string_view text) {
  const size_t whole = digits_at_front(text);
  if (whole == 0 || whole == text.size() || text[whole] != '.') {
    return whole;
  }
  const size_t fraction = digits_at_front(text.substr(whole + 1));
  return fraction == 0 ? 0 : whole + 1 + fraction;
}

std::optional<int64_t> unit_of(std::string_view text) {
  for (const auto& [suffix, bytes] : kUnits) {
    if (text == suffix) {
      return bytes;
    }
  }
  return std::nullopt;
}

// Nothing if there are too many for an int64_t.
std::optional<int64_t> bytes_in(const std::string& number, int64_t unit) {
  if (number.find('.') != std::string::npos) {
    const double bytes = std::strtod(number.c_str(), nullptr) * static_cast<double>(unit);
    return bytes < kTooMany ? std::optional(static_cast<int64_t>(bytes)) : std::nullopt;
  }
  errno = 0;
  const long long count = std::strtoll(number.c_str(), nullptr, 10);
  int64_t bytes = 0;
  if (errno == ERANGE || __builtin_mul_overflow(count, unit, &bytes)) {
    return std::nullopt;
  }
  return bytes;
}

[[noreturn]] void reject_bytes(std::string_view name, std::string_view text, const std::string& expected) {
  throw std::invalid_argument(std::string(name) + " is \"" + std::string(text) + "\"; expected " + expected);
}

}  // namespace

std::string_view without_spaces(std::string_view text) {
  constexpr std::string_view kSpaces = " \t\n\r\f\v";
  const size_t first = text.find_first_not_of(kSpaces);
  return first == std::string_view::npos ? "" : text.substr(first, text.find_last_not_of(kSpaces) - first + 1);
}

int64_t parse_bytes(std::string_view text, std::string_view name) {
  const std::string_view given = without_spaces(text);
  const size_t length = length_of_number(given);
  const std::optional<int64_t> unit = unit_of(without_spaces(given.substr(length)));
  if (length == 0 || !unit) {
    reject_bytes(name, text,
                 "a number of bytes, or a text of a number and one of KiB, MiB, GiB and TiB (powers of 1024), such as "
                 "\"64MiB\" or \"1.5GiB\".");
  }
  const std::optional<int64_t> bytes = bytes_in(std::string(given.substr(0, length)), *unit);
  if (!bytes || *bytes <= 0) {
    reject_bytes(name, text, "a positive number of bytes, below 2**63.");
  }
  return *bytes;
}

}  // namespace ac2::internal

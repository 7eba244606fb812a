#include "ac2/internal/automatic/settings.h"

#include <array>
#include <cctype>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <stdexcept>
#include <utility>

#include "ac2/internal/automatic/variables.h"

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

[[noreturn]] void reject(std::string_view name, std::string_view text, const std::string& expected) {
  throw std::invalid_argument(std::string(name) + " is \"" + std::string(text) + "\"; expected " + expected);
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpaces = " \t\n\r\f\v";
  const size_t first = text.find_first_not_of(kSpaces);
  return first == std::string_view::npos ? "" : text.substr(first, text.find_last_not_of(kSpaces) - first + 1);
}

size_t count_digits(std::string_view text) {
  size_t count = 0;
  while (count < text.size() && std::isdigit(static_cast<unsigned char>(text[count])) != 0) {
    ++count;
  }
  return count;
}

// The length of "64" or "1.5" at the beginning, and 0 if there is no such number.
size_t length_of_number(std::string_view text) {
  const size_t whole = count_digits(text);
  if (whole == 0 || whole == text.size() || text[whole] != '.') {
    return whole;
  }
  const size_t fraction = count_digits(text.substr(whole + 1));
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

std::string value_of(const Variables& variables, const char* name) {
  const char* const value = variables(name);
  return value == nullptr ? "" : value;
}

bool flag_of(const Variables& variables, const char* name) {
  const std::string text = value_of(variables, name);
  if (!text.empty() && text != "0" && text != "1") {
    reject(name, text, "1 or 0.");
  }
  return text == "1";
}

// 0 if it is no number: others than launchers may use such a name.
int count_of(const Variables& variables, const char* name) {
  const std::string text = value_of(variables, name);
  constexpr size_t kDigits = 9;
  const bool is_number = !text.empty() && text.size() <= kDigits && count_digits(text) == text.size();
  return is_number ? std::atoi(text.c_str()) : 0;
}

}  // namespace

int64_t parse_bytes(std::string_view text, std::string_view name) {
  const std::string_view given = trimmed(text);
  const size_t length = length_of_number(given);
  const std::optional<int64_t> unit = unit_of(trimmed(given.substr(length)));
  if (length == 0 || !unit) {
    reject(name, text,
           "a number of bytes, or a text of a number and one of KiB, MiB, GiB and TiB (powers of 1024), such as "
           "\"64MiB\" or \"1.5GiB\".");
  }
  const std::optional<int64_t> bytes = bytes_in(std::string(given.substr(0, length)), *unit);
  if (!bytes || *bytes <= 0) {
    reject(name, text, "a positive number of bytes, below 2**63.");
  }
  return *bytes;
}

BudgetSetting parse_budget(std::string_view text, std::string_view name) {
  using Kind = BudgetSetting::Kind;
  const std::string_view given = trimmed(text);
  if (given == "auto") {
    return {};
  }
  const size_t colon = given.find(':');
  if (colon == std::string_view::npos) {
    if (count_digits(given) == 0) {
      reject(name, text, "\"auto\", or a number of bytes as in \"8GiB\", \"peak:20GiB\" or \"soft:1GiB\".");
    }
    return {Kind::kStrict, parse_bytes(given, name)};
  }
  const std::string_view kind = given.substr(0, colon);
  if (kind != "peak" && kind != "soft") {
    reject(name, text, "\"peak:\" or \"soft:\" before a number of bytes, as in \"peak:20GiB\".");
  }
  return {kind == "peak" ? Kind::kPeak : Kind::kSoft, parse_bytes(given.substr(colon + 1), name)};
}

AutomaticSettings settings_of(const Variables& variables) {
  AutomaticSettings settings;
  settings.policy = value_of(variables, variables::kPolicy);
  settings.forms = value_of(variables, variables::kForms);
  settings.report = value_of(variables, variables::kReport);
  settings.verify = flag_of(variables, variables::kVerify);
  settings.quiet = flag_of(variables, variables::kQuiet);
  if (const std::string budget = value_of(variables, variables::kBudget); !budget.empty()) {
    settings.budget = parse_budget(budget, variables::kBudget);
    settings.budget_text = trimmed(budget);
  } else if (!settings.policy.empty()) {
    settings.budget.reset();
    settings.budget_text.clear();
  }
  settings.rank = count_of(variables, variables::kRank);
  settings.modelled_costs = count_of(variables, variables::kWorldSize) > 1;
  return settings;
}

}  // namespace ac2::internal

#include "ac2/internal/automatic/settings.h"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdlib>
#include <stdexcept>
#include <utility>

#include "ac2/internal/automatic/variables.h"
#include "ac2/internal/bytes/parse_bytes.h"

namespace ac2::internal {

namespace {

[[noreturn]] void reject(std::string_view name, std::string_view text, const std::string& expected) {
  throw std::invalid_argument(std::string(name) + " is \"" + std::string(text) + "\"; expected " + expected);
}

bool is_digit(unsigned char letter) {
  return std::isdigit(letter) != 0;
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
  const bool is_number = !text.empty() && text.size() <= kDigits && std::all_of(text.begin(), text.end(), is_digit);
  return is_number ? std::atoi(text.c_str()) : 0;
}

}  // namespace

BudgetSetting parse_budget(std::string_view text, std::string_view name) {
  using Kind = BudgetSetting::Kind;
  const std::string_view given = without_spaces(text);
  if (given == "auto") {
    return {};
  }
  const size_t colon = given.find(':');
  if (colon == std::string_view::npos) {
    if (given.empty() || !is_digit(given.front())) {
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
    settings.budget_text = without_spaces(budget);
  } else if (!settings.policy.empty()) {
    settings.budget.reset();
    settings.budget_text.clear();
  }
  settings.rank = count_of(variables, variables::kRank);
  settings.modelled_costs = count_of(variables, variables::kWorldSize) > 1;
  return settings;
}

}  // namespace ac2::internal

// The settings of a program that runs as a whole in a region: options of a command line, or variables of the
// environment.
//
//   const AutomaticSettings settings = settings_of(std::getenv);   // AC2_MEMORY_BUDGET=soft:1GiB AC2_QUIET=1
//
// Plain data, without LibTorch: a program that starts another one reads its options before there is any. Wrong texts
// are std::invalid_argument. The message begins with the name that the caller gives: of an option or of a variable.
//
// Threads: any.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace ac2::internal {

// "auto", "8GiB", "peak:20GiB", "soft:1GiB": ac2::whatever_fits(), and the ways to make a MemoryBudget of a number.
struct BudgetSetting {
  enum class Kind : uint8_t { kWhateverFits, kStrict, kPeak, kSoft };
  Kind kind = Kind::kWhateverFits;
  int64_t bytes = 0;  // not of kWhateverFits

  bool operator==(const BudgetSetting&) const = default;
};

struct AutomaticSettings {
  // Without one the policy decides alone what is saved.
  std::optional<BudgetSetting> budget = BudgetSetting{};
  std::string budget_text = "auto";  // as it was given; empty without one
  std::string policy = {};           // by its name; empty: what fits is kept
  std::string forms = {};            // that the budget may use: a list as of forms/ready_made_forms.h
  std::string report = {};           // the path of the page that is written at the end; empty: none
  bool verify = false;
  bool quiet = false;  // says nothing at the end
  int rank = 0;        // of the processes of one job
  // Of a job of several processes: those with the same shapes drop the same values.
  bool modelled_costs = false;

  bool operator==(const AutomaticSettings&) const = default;
};

// The value of a variable of the environment, or null: std::getenv.
using Variables = std::function<const char*(const char* name)>;

// AC2_MEMORY_BUDGET, AC2_POLICY, AC2_FORMS, AC2_REPORT, AC2_VERIFY and AC2_QUIET (1 or 0). An empty variable counts as
// none. With a policy and without a budget there is none: under a budget without a number no policy would have an
// effect before memory runs out. RANK and WORLD_SIZE, if they are numbers, tell of a job of several processes.
AutomaticSettings settings_of(const Variables& variables);

BudgetSetting parse_budget(std::string_view text, std::string_view name);

}  // namespace ac2::internal

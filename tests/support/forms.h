// Forms for tests: a SaveWithHooks as one, and what a plan makes of them.
#pragma once

#include <string_view>
#include <utility>

#include "ac2/form.h"
#include "ac2/plan.h"

namespace ac2::test {

inline FormPtr form_of(SaveWithHooks functions, bool exact = false) {
  return forms::functions(std::move(functions.pack), std::move(functions.unpack), exact);
}

// All forms together whose names begin so.
inline PlanSummary::Use use_of(const PlanSummary& summary, std::string_view name = "") {
  PlanSummary::Use sum;
  for (const PlanSummary::Use& use : summary.uses) {
    if (std::string_view(use.form).starts_with(name)) {
      sum.values += use.values;
      sum.bytes += use.bytes;
      sum.cost += use.cost;
    }
  }
  return sum;
}

}  // namespace ac2::test

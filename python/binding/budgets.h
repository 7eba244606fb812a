// Memory budgets.
#pragma once

#include <pybind11/pybind11.h>

#include "ac2/budget_option.h"

namespace ac2::python {

// Before functions that have a budget as a default.
void add_budgets(pybind11::module_& module);

// None, a number of bytes, or a MemoryBudget; else a TypeError.
BudgetOption budget_option(const pybind11::object& budget);

}  // namespace ac2::python

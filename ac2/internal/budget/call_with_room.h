// Calls that are made again after a budget has freed memory.
//
//   const at::Tensor y = call_with_room(budget, [&] { return at::sin(x); });
//
// Threads: any. No lock may be held.
#pragma once

#include <exception>

#include "ac2/internal/allocator/retried_op.h"
#include "ac2/internal/budget/budget.h"
#include "ac2/internal/libtorch/out_of_memory.h"

namespace ac2::internal {

// Returns the result of `call`. If memory ran out in `call` and the budget, if there is one, could free some, returns
// the result of `again`. Under a budget without a number `again` is tried as long as something can be freed.
// `before_freeing` is called before anything is freed, which may run destructors of the program's.
template <class Call, class BeforeFreeing, class Again>
auto call_with_room(Budget* budget, Call&& call, BeforeFreeing&& before_freeing, Again&& again) {
  if (budget == nullptr) {
    return call();
  }
  const RetriedOp retried(budget->has_no_number());
  try {
    return call();
  } catch (const std::exception& error) {
    if (!is_out_of_memory(error)) {
      throw;
    }
    before_freeing();
    if (!budget->drop_for_another_try()) {
      throw;
    }
  }
  for (;;) {
    try {
      return again();
    } catch (const std::exception& error) {
      if (!budget->has_no_number() || !is_out_of_memory(error) || !budget->drop_for_another_try()) {
        throw;
      }
    }
  }
}
template <class Call>
auto call_with_room(Budget* budget, Call&& call) {
  return call_with_room(
      budget, call, [] {}, call);
}

}  // namespace ac2::internal

// What a call costs, from its shapes alone: for budgets that must drop the same values each time the same program runs.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>

#include "ac2/internal/operators/op_facts.h"

namespace ac2::internal {

// A roofline (Williams, Waterman and Patterson, 2009): the larger of arithmetic and memory traffic, plus a constant for
// the call. Nanoseconds of an imagined machine; only ratios mean anything.
double modelled_cost(const OpFacts& facts, c10::ArrayRef<c10::IValue> arguments, c10::ArrayRef<c10::IValue> results);

}  // namespace ac2::internal

// The cost of a call, computed from its shapes alone. The modelled cost is for budgets that must evict the same values
// each time the same program runs, and for budgets of devices, where a clock would measure how long it took to queue
// the op.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>

#include "ac2/internal/operators/op_facts.h"

namespace ac2::internal {

// A roofline (Williams, Waterman and Patterson, 2009): the time of the arithmetic or of the memory traffic, whichever
// is larger, plus a constant for the call. The cost is in nanoseconds of an imagined machine, so that only ratios mean
// anything.
double modelled_cost(const OpFacts& facts, c10::ArrayRef<c10::IValue> arguments, c10::ArrayRef<c10::IValue> results);

}  // namespace ac2::internal

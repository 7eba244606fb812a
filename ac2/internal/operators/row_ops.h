// Ops that compute each row of their results from one row of their arguments, with the same bits however many rows
// there are. ac2::in_chunks with `exact` takes no others.
//
//   const RowRule rule = row_rule(op, arguments, tensors);     // before the call
//   const int64_t dim = rule.dim_of(result, rows);               // after it
//
// Rows are counted along one dimension of a tensor, whose size is their number, or a multiple of it where what a row
// has inside was flattened into that dimension: [rows, tokens] to [rows * tokens]. A tensor without such a dimension is
// shared by all rows.
//
// The table in row_ops.cc has what has been measured, in forward and in backward. An op that is elementwise by its
// formula may not be in it: the CPU kernels of sigmoid, silu, gelu and others compute the numbers at the end of a
// stretch of memory by other code than those before, and where that end is depends on the number of rows. Sums add in
// another order where rows do not lie one behind the other in memory.
//
// Threads: any.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <string>

namespace ac2::internal {

// Of a tensor that is shared by all rows.
inline constexpr int64_t kNoRows = -1;

struct RowRule {
  // Where a result has its rows. kBefore: behind dimensions that together have `position` places.
  enum class Place : uint8_t { kFromLeft, kFromRight, kBefore };

  std::string refusal = {};  // why the results might not have the bits of one call; empty if they have
  Place place = Place::kFromLeft;
  int64_t position = kNoRows;

  // kNoRows if the rows are not to be found in the result.
  int64_t dim_of(const at::Tensor& result, int64_t rows) const;
};

// A tensor among the arguments, in order. Of `tensor` no number is read.
struct RowArgument {
  at::Tensor tensor;
  int64_t dim = kNoRows;
};

// For a call with a tensor that has rows.
RowRule row_rule(const c10::OperatorHandle& op, c10::ArrayRef<const c10::IValue> arguments,
                 c10::ArrayRef<RowArgument> tensors);

}  // namespace ac2::internal

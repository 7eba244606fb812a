// One op that is too large: a function of rows is run on a few rows at a time, in forward and in backward.
//
//   // The logits of a large vocabulary and their loss. All logits together are never there.
//   at::Tensor sum = ac2::in_chunks(
//       [&](const at::Tensor& hidden, const at::Tensor& target) {
//         return torch::cross_entropy_loss(at::linear(hidden, vocabulary), target, {}, at::Reduction::Sum);
//       },
//       {hidden, target}, {.chunks = 8, .reduce = "sum"});
//
// The tensors are cut along a dimension, and the function is called once for each chunk, in order. Its results are
// concatenated along that dimension, or added up. Each chunk runs in a region that computes again what backward needs
// (as PolicyScope("recompute_all")), and autograd goes through the chunks one after the other. So at no time is more
// than the inside of one chunk there, in forward or in backward. Between the two a region holds the tensors, what the
// function takes from elsewhere (weights), and what comes out. Gradients of weights are added up by autograd over the
// chunks. The function never runs twice; its ops are replayed.
//
// Inside a region the chunks are scopes of that region: a MUST decision of a scope around them counts, and under a
// memory budget a chunk's results are the first to go, when there is no room, and not before. A plan (ac2/plan.h) has
// each chunk computed again once, however many bytes it has. Neither chooses the number of chunks.
//
// Bits: concatenated results and the gradients of the tensors that are cut have the bits of one call wherever the
// function's ops compute each row by itself, with the same numbers however many rows they get. That holds for most
// elementwise ops, and for layer norm and softmax over the last dimension. sigmoid, silu, gelu and some others may
// differ in the last bit on the CPU, where kernels compute the ends of stretches of memory by other code; which end
// where depends on the number of rows. A product of matrices may add in another order for another number of rows. What
// is added up over chunks, the gradients of weights and "sum" and "mean", differs from one call by the order of
// additions; numbers of a half precision are added up in float. Ops that draw random numbers draw chunk by chunk. With
// `exact` all of these are errors.
//
// Threads: as PolicyScope.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "ac2/bytes.h"

namespace ac2 {

struct ChunkOptions {
  // Along which the tensors are cut, and results concatenated. Negative ones count from the end.
  int64_t dim = 0;
  // Either of both. `chunks`: how many, of sizes that differ by one row at most; no more than there are rows. `bytes`:
  // the results of all ops of a chunk together take no more in forward, unless those of a single row do. How much a row
  // takes is measured on a first chunk of a 64th of the rows and of 16 at most, whose results may take more, and again
  // where a later chunk has taken more, because rows differ.
  std::optional<int64_t> chunks = std::nullopt;
  std::optional<Bytes> bytes = std::nullopt;
  // "": results are concatenated. "sum": they are added up. "mean": each result is a mean over its chunk's rows, and is
  // weighted by their number; or the function returns two results, a sum and a count of what was added, and the one
  // result is the sum of the sums by the sum of the counts (a cross entropy that ignores some targets).
  std::string reduce = "";
  // What might not have the bits of one call is an error, after the first chunk at the latest. It names the op, or what
  // is a sum over chunks: `reduce`, and gradients of tensors that are not cut. Ops are taken to be exact that are in
  // the list of ac2/internal/operators/row_ops.cc, where others have been compared and left out; an op that is not
  // there is refused, and so is a torch::autograd::Function. Each chunk has two rows at least, because ops on one row
  // may add in another order. Not seen are kernels that take raw pointers, and numbers that the function reads from
  // sizes.
  bool exact = false;
};

namespace internal {

using ChunkFunction = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>& slices)>;
std::vector<at::Tensor> in_chunks(const ChunkFunction& fn, const std::vector<at::Tensor>& tensors,
                                  const ChunkOptions& options);
// Throws what in_chunks() throws before it calls anything.
void check_chunks(const std::vector<at::Tensor>& tensors, const ChunkOptions& options);
// The number of chunks into which `rows` are cut if nobody has given one: a chunk has as many rows as a row has
// `features`, and no fewer than `least_rows`, because ops on fewer rows take as long.
int64_t chunks_for(int64_t rows, int64_t features, int64_t least_rows);

// How many tensors a function may take, if it does not take a list.
inline constexpr size_t kMostSlices = 8;

template <class Fn, size_t... kIndices>
auto call_with(Fn& fn, const std::vector<at::Tensor>& slices, std::index_sequence<kIndices...>)
    -> decltype(fn(slices[kIndices]...)) {
  return fn(slices[kIndices]...);
}

template <class Fn, size_t kCount>
concept TakesSlices = requires(Fn& fn, const std::vector<at::Tensor>& slices) {
  call_with(fn, slices, std::make_index_sequence<kCount>());
};
template <class Fn>
concept TakesAList = std::is_invocable_v < Fn&,
        const std::vector<at::Tensor>
& > ;

// The type of the results of `fn`, called with a list, or with the fewest tensors that it takes.
template <class Fn, size_t kCount = 1>
auto result_type() {
  const std::vector<at::Tensor> slices;
  if constexpr (TakesAList<Fn>) {
    return std::type_identity<std::decay_t<decltype(std::declval<Fn&>()(slices))>>();
  } else if constexpr (TakesSlices<Fn, kCount>) {
    using Result = decltype(call_with(std::declval<Fn&>(), slices, std::make_index_sequence<kCount>()));
    return std::type_identity<std::decay_t<Result>>();
  } else {
    static_assert(kCount < kMostSlices, "in_chunks: the function must take tensors, up to eight, or a vector of them");
    return result_type<Fn, kCount + 1>();
  }
}

inline std::vector<at::Tensor> as_list(at::Tensor result) {
  return {std::move(result)};
}
inline std::vector<at::Tensor> as_list(std::vector<at::Tensor> results) {
  return results;
}

template <size_t kCount = 1, class Fn>
std::vector<at::Tensor> call_with_slices(Fn& fn, const std::vector<at::Tensor>& slices) {
  if constexpr (TakesAList<Fn>) {
    return as_list(fn(slices));
  } else if constexpr (kCount > kMostSlices) {
    C10_THROW_ERROR(Error, c10::str("in_chunks: the function does not take ", slices.size(),
                                    " tensors, which it was given. Have it take as many, or a std::vector of them."));
  } else {
    if constexpr (TakesSlices<Fn, kCount>) {
      if (slices.size() == kCount) {
        return as_list(call_with(fn, slices, std::make_index_sequence<kCount>()));
      }
    }
    return call_with_slices<kCount + 1>(fn, slices);
  }
}

}  // namespace internal

// `fn` takes a slice of each of the tensors, or a std::vector of the slices, and returns a tensor or a std::vector of
// tensors. Returns the same. Throws c10::Error if the tensors have no common size along the dimension, if options are
// invalid, if `fn` takes or returns another number of tensors than it should, and what `fn` throws.
template <class Fn>
auto in_chunks(Fn&& fn, const std::vector<at::Tensor>& tensors, const ChunkOptions& options) {
  using Result = typename decltype(internal::result_type<std::remove_reference_t<Fn>>())::type;
  std::vector<at::Tensor> results = internal::in_chunks(
      [&fn](const std::vector<at::Tensor>& slices) { return internal::call_with_slices(fn, slices); }, tensors,
      options);
  if constexpr (std::is_convertible_v<Result, at::Tensor>) {
    return std::move(results[0]);
  } else {
    return results;
  }
}
template <class Fn>
auto in_chunks(Fn&& fn, const at::Tensor& tensor, const ChunkOptions& options) {
  return in_chunks(std::forward<Fn>(fn), std::vector<at::Tensor>{tensor}, options);
}

}  // namespace ac2

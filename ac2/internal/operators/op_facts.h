// The facts about an operator that recording and replaying its calls needs.
//
//   const OpFacts& facts = op_facts(op);   // made at the first call for `op`, found in a cache at later ones
//
// Facts come from the operator's schema and kernels, and from op_tables.h where these do not tell.
//
// Lifetime: facts never change, except for seen_to_draw, and are never freed, not even when the operator is
// deregistered: nodes refer to them. Threads: op_facts() may be called from any thread.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/SmallVector.h>

#include <atomic>
#include <cstdint>
#include <string>

#include "ac2/internal/operators/op_tables.h"

namespace ac2::internal {

struct OpFacts {
  explicit OpFacts(const c10::OperatorHandle& op);

  c10::OperatorHandle op;
  std::string name;  // "aten::add.Tensor"
  uint16_t num_arguments = 0;
  uint16_t num_returns = 0;

  // The op returns views of its arguments and nothing else, so there is nothing to record.
  bool is_view = false;
  // The op changes sizes and strides, or which storage a tensor has, but no bytes.
  bool writes_metadata_only = false;
  // The op writes metadata only, but ADInplaceOrView counts a new version all the same.
  bool bumps_version_only = false;
  bool detaches = false;  // aten::detach or aten::detach_

  // Indices of the arguments that may be written.
  c10::SmallVector<uint16_t, 2> written;
  // Index of the bool argument that must be true for `written` to count, or -1.
  int written_only_if = -1;
  // The arguments among `written` whose version counter does not count the write, and on whose old bytes no result
  // depends. Tensors that autograd has saved of them follow the write, in a region as in plain PyTorch.
  c10::SmallVector<uint16_t, 2> written_unseen;
  // False for an op of others that has no kernel of ADInplaceOrView: nobody counts what it writes.
  bool counts_writes = true;
  // No result depends on what a written tensor held before.
  bool overwrites = false;
  // The op has a result other than the written arguments.
  bool has_fresh_results = false;

  // The op says that it draws from a generator: by Tag::nondeterministic_seeded, or, if it is one of LibTorch's own, by
  // an argument that is a Generator. Ops of others may draw and say nothing (draw_watch.h).
  bool draws = false;
  // A call of the op that says nothing has been seen to draw.
  mutable std::atomic<bool> seen_to_draw{false};
  // Index of the Generator argument, or -1.
  int generator_argument = -1;
  bool is_aten = false;
  // Each number of a result is computed from those at its place in the arguments (Tag::pointwise), and the op writes
  // nothing else and draws nothing.
  bool is_pointwise = false;
  // The results may depend on how precise products of float32 have to be.
  bool reads_precision = false;
  // The op is made of other ops. The op arrives here whole where autograd is off for the thread (inference mode,
  // kernels that dispatch below autograd), and may look at which of its arguments require a gradient, as matmul does.
  bool is_composite = false;

  // Where the op may compute other bits when it runs again on the same arguments: its kernel adds in any order. Of an
  // op of others nobody knows, so that it may everywhere.
  Varies varies = Varies::kNowhere;

  // Results are values from outside, held by reference, because code that no dispatcher sees may fill them
  // (torch::tensor, data_ptr()), or because running the op again would have an effect (a collective).
  bool never_recompute = false;
  // The op communicates with other processes, or belongs to what does. The op is run again only where the user has said
  // MUST_RECOMPUTE, and never if it is never_recompute too: if it writes into an argument, or waits for another op. Its
  // results may be on their way when it returns, so ac2 does not look at their bytes.
  bool communicates = false;
  // The results of a collective are there when wait_tensor() has waited for them.
  bool returns_early = false;

  // Indices of the results into which a backward kernel writes: these are handed out as copies.
  c10::SmallVector<uint16_t, 1> clobbered_results;

 private:
  void note_arguments(const c10::FunctionSchema& schema);
  void note_results(const c10::FunctionSchema& schema);
  void note_metadata_writes(const std::string& base);
  void note_communication(const c10::FunctionSchema& schema);
};

const OpFacts& op_facts(const c10::OperatorHandle& op);

}  // namespace ac2::internal

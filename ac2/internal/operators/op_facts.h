// What must be known of an operator to record and replay its calls, looked up once per operator.
//
// Threads: op_facts() may be called from any thread; the facts never change and are never freed, for nodes refer to
// them.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/SmallVector.h>

#include <cstdint>
#include <string>

namespace ac2::internal {

struct OpFacts {
  explicit OpFacts(const c10::OperatorHandle& op);

  c10::OperatorHandle op;
  std::string name;  // "aten::add.Tensor"
  uint16_t num_arguments = 0;
  uint16_t num_returns = 0;

  // Returns views of its arguments and nothing else: nothing to record.
  bool is_view = false;
  // Changes sizes and strides, or which storage a tensor has, but no bytes.
  bool writes_metadata_only = false;
  // Of these, ADInplaceOrView will count a new version all the same.
  bool bumps_version_only = false;

  // Indices of the arguments that may be written.
  c10::SmallVector<uint16_t, 2> written;
  // Index of the bool argument that must be true for `written` to count, or -1.
  int written_only_if = -1;
  // Those of `written` of which no version counter is told and on whose old bytes no result depends. What autograd has
  // saved of them changes under its hands, there as here.
  c10::SmallVector<uint16_t, 2> written_unseen;
  // Whatever stood in a written tensor before makes no difference to any result.
  bool overwrites = false;
  // Has a result other than the written arguments.
  bool has_fresh_results = false;

  // Draws from a generator (Tag::nondeterministic_seeded).
  bool draws = false;
  int generator_argument = -1;
  bool is_aten = false;
  // Made of other ops. Such an op arrives here whole where autograd is off for the thread (inference mode, kernels that
  // dispatch below autograd), and may look at which of its arguments require a gradient, as matmul does.
  bool is_composite = false;

  // Its result may be filled by code that no dispatcher sees (torch::tensor, data_ptr()), or running it again would do
  // something (a collective): results are values from outside, held by reference.
  bool never_recompute = false;

  // Results, by index, into which a backward kernel writes: handed out as copies.
  c10::SmallVector<uint16_t, 1> clobbered_results;
};

const OpFacts& op_facts(const c10::OperatorHandle& op);

}  // namespace ac2::internal

// The forms that each result of a recorded step could be held in: the bytes and the costs, found while the step is
// recorded.
//
//   MeasuredForms forms({forms::one_bit(), forms::quantized(8)}, costs);
//   …for each op, from a policy: forms.measure(op);
//   forms.mark(log, graph);       // StepGraph::Value::forms
//
// Each result is packed and unpacked once in each form, and what that makes is let go of at once. Where costs are
// modelled and a form has an estimate, nothing is packed.
//
// Threads: not thread-safe.
#pragma once

#include <c10/core/StorageImpl.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "ac2/form.h"
#include "ac2/internal/observe/step_log.h"
#include "ac2/internal/operators/cost_source.h"
#include "ac2/internal/planning/step_graph.h"
#include "ac2/policy.h"

namespace ac2::internal {

class MeasuredForms {
 public:
  // A form that the library copies by itself is not measured.
  MeasuredForms(const Forms& forms, CostSource costs) : forms_(forms), costs_(costs) {}

  // Packs the results of the op. Passes on what a form throws.
  void measure(const OpContext& op);
  // Notes for values of the graph, which the log has recorded, in which forms they may be held. An op has forms if its
  // fate is open, no MUST within the step decides on it, and all of its results were measured.
  void mark(const StepLog& log, StepGraph& graph) const;

 private:
  // By the storage of the result.
  using Results = absl::flat_hash_map<const c10::StorageImpl*, std::vector<StepGraph::FormOfValue>>;

  // Null if the form does not take the tensor, or frees nothing.
  std::optional<StepGraph::FormOfValue> measured(const Form& form, const at::Tensor& whole) const;
  bool is_measured(const StepLog& log, const StepGraph& graph, uint32_t op) const;

  const Forms& forms_;
  const CostSource costs_;
  absl::flat_hash_map<int64_t, Results> results_;  // by OpContext::index()
};

}  // namespace ac2::internal

// The form that each result of a recorded step could be packed in: its bytes and what packing costs, found by packing
// each result once, while the step is recorded.
//
//   MeasuredForms forms(functions);
//   …for each op, from a policy: forms.measure(op);
//   forms.mark(log, graph);       // StepGraph::Value::narrows and so on
//
// The result of the pack function is let go of at once.
//
// Threads: not thread-safe.
#pragma once

#include <c10/core/StorageImpl.h>

#include <cstdint>
#include <memory>

#include "absl/container/flat_hash_map.h"
#include "ac2/internal/observe/step_log.h"
#include "ac2/internal/planning/step_graph.h"
#include "ac2/policy.h"

namespace ac2::internal {

class MeasuredForms {
 public:
  explicit MeasuredForms(std::shared_ptr<const SaveWithHooks> functions) : functions_(std::move(functions)) {}

  // Packs the results of the op. Passes on what the pack function throws.
  void measure(const OpContext& op);
  // Notes which values of the graph have a form. A result that the form does not take counts as a copy of itself, which
  // is what a plan holds of it (PlannedStep::form). An op has forms if its fate is open, no MUST within the step
  // decides on it, and all of its results were measured.
  void mark(const StepLog& log, StepGraph& graph) const;

 private:
  struct Form {
    int64_t bytes = 0;
    double ticks = 0;  // that packing took; 0: a clock says nothing of it
  };
  using Forms = absl::flat_hash_map<const c10::StorageImpl*, Form>;  // by the storage of the result

  bool is_measured(const StepLog& log, const StepGraph& graph, uint32_t op) const;

  std::shared_ptr<const SaveWithHooks> functions_;
  absl::flat_hash_map<int64_t, Forms> forms_;  // by OpContext::index()
};

}  // namespace ac2::internal

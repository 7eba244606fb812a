// An observer that writes down the events of a region as a StepGraph for the planner.
//
//   auto log = std::make_shared<StepLog>(CostSource::kMeasured);
//   …a region is opened with OpeningOptions::log, and the step runs…
//   StepGraph graph = log->take();
//
// The log keeps nothing of the program alive.
//
// Threads: as Observer; take(), indices(), decided_within() and devices() need the lock of the region's tape too. A log
// is for one tape.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "ac2/internal/graph/node.h"
#include "ac2/internal/operators/cost_source.h"
#include "ac2/internal/planning/step_graph.h"
#include "ac2/internal/tape/observer.h"
#include "ac2/policy.h"

namespace ac2::internal {

class StepLog final : public Observer {
 public:
  explicit StepLog(CostSource costs) : costs_(costs) {}

  std::optional<CostSource> costs() const override { return costs_; }
  bool tells_values_apart() const override { return true; }
  void node_recorded(const Node& node, const PolicyDecision& decision, int64_t scope_id, double cost) override;
  void decided_again(const Value& value, const PolicyDecision& decision, DecidedBy by) override;
  void overwritten(const Value& value) override;
  void before_drop(const Value& value) override;
  void hook_added(const TapeHook& hook, const Value& value) override;
  void hook_removed(const TapeHook& hook, const Value& value) override;
  void hook_taken(const TapeHook& hook, int graph_task) override;
  void value_died(const Value& value) override;

  // Called once the step is over. If no hook has been taken out, a backward in reverse order is added.
  StepGraph take();
  // For each op of the graph, its index in the region, as OpContext::index().
  const std::vector<int64_t>& indices() const { return indices_; }
  // For each op of the graph, whether its decision is a MUST.
  const std::vector<bool>& decided_within() const { return decided_within_; }
  // For each value of the graph, the device that its bytes are on. Null if no op of the graph made it, or if its bytes
  // lie in no plain storage of its own.
  const std::vector<std::optional<c10::Device>>& devices() const { return devices_; }

 private:
  uint32_t id_of(const Value& value);
  // Null if no op made it.
  StepGraph::Op* op_of(const Value& value);
  // Notes, for each value that is held from outside, whether the program keeps it too.
  void look_outside();
  void look_at(const Value& value, uint32_t id);
  void note_packed(const Value& value, uint32_t id);
  void append_backward();

  const CostSource costs_;
  StepGraph graph_;
  std::vector<int64_t> indices_;
  std::vector<bool> decided_within_;
  std::vector<std::optional<c10::Device>> devices_;
  absl::flat_hash_map<const Value*, uint32_t> ids_;
  absl::flat_hash_map<const TapeHook*, uint32_t> hooks_;
  int graph_task_ = -1;
};

}  // namespace ac2::internal

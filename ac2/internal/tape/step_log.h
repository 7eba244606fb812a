// What a region does, written down as a StepGraph for the planner.
//
//   auto log = std::make_shared<StepLog>(CostSource::kMeasured);
//   …a region is opened with RegionOptions::log, and the step runs…
//   StepGraph graph = log->take();
//
// It keeps nothing of the program alive. All functions but the constructor, take() and costs() need the lock
// of the region's tape, and there may be but one tape.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "ac2/internal/operators/cost_source.h"
#include "ac2/internal/planning/step_graph.h"
#include "ac2/internal/tape/graph.h"
#include "ac2/policy.h"

namespace ac2::internal {

class SavedTensorHook;

class StepLog {
 public:
  explicit StepLog(CostSource costs) : costs_(costs) {}
  StepLog(const StepLog&) = delete;
  StepLog& operator=(const StepLog&) = delete;

  CostSource costs() const { return costs_; }

  // A finished node with results.
  void called(const Node& node, const PolicyDecision& decision, double cost);
  // A tag decides for the value.
  void tagged(const Value& value, const PolicyDecision& decision);
  void overwritten(const Value& value);
  void wanted(const SavedTensorHook* hook, const Value& value);
  // `graph_task` is -1 outside backward.
  void taken(const SavedTensorHook* hook, int graph_task);
  void released(const SavedTensorHook* hook);
  // What the value holds is about to go.
  void letting_go(const Value& value);
  // The value dies.
  void forget(const Value& value);

  // Once the step is over. If nothing has been taken out, a backward in reverse order is taken for granted.
  StepGraph take();
  // By op of the graph: its index in the region, as OpContext::index().
  const std::vector<int64_t>& indices() const { return indices_; }
  // By op of the graph: its decision is a MUST.
  const std::vector<bool>& decided_within() const { return decided_within_; }

 private:
  uint32_t id_of(const Value& value);
  // Null if no op made it.
  StepGraph::Op* op_of(const Value& value);
  // Of what is held from outside: does the program keep it, too?
  void look_outside();
  void look_at(const Value& value, uint32_t id);
  void note_packed(const Value& value, uint32_t id);
  void append_backward();

  const CostSource costs_;
  StepGraph graph_;
  std::vector<int64_t> indices_;
  std::vector<bool> decided_within_;
  absl::flat_hash_map<const Value*, uint32_t> ids_;
  absl::flat_hash_map<const SavedTensorHook*, uint32_t> hooks_;
  int graph_task_ = -1;
};

}  // namespace ac2::internal

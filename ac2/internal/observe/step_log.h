// An observer that writes down the events of a region as a StepGraph for the planner.
//
//   auto log = std::make_shared<StepLog>(CostSource::kMeasured);
//   …a region is opened with OpeningOptions::log, and the step runs…
//   StepGraph graph = log->take();
//
// With a StepMeter, which stands in step_meter.h, the log measures the memory of a device at each event. The log then
// locks the tape at each op.
//
// The log keeps nothing of the program alive.
//
// Threads: as Observer. All else but the constructor needs the lock of the region's tape too. A log is for one tape.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/StorageImpl.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "ac2/internal/graph/node.h"
#include "ac2/internal/observe/step_meter.h"
#include "ac2/internal/operators/cost_source.h"
#include "ac2/internal/planning/step_graph.h"
#include "ac2/internal/planning/step_readings.h"
#include "ac2/internal/tape/observer.h"
#include "ac2/policy.h"

namespace ac2::internal {

class StepLog final : public Observer {
 public:
  explicit StepLog(CostSource costs, std::unique_ptr<StepMeter> meter = nullptr)
      : costs_(costs), meter_(std::move(meter)) {}

  // Of all ops so far.
  double cost() const { return cost_; }

  // Before the step.
  void set_tape(Tape& tape) { tape_ = &tape; }

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
  void bytes_changed(const ByteChange& change) override;
  std::unique_ptr<CallObservation> observe_call(const OpFacts& facts, int64_t index) override;

  // Called once the step is over. If no hook has been taken out, a backward in reverse order is added.
  StepGraph take();
  // The readings of the meter, once take() has been called. Nothing without a meter, if the step ran no backward, and
  // if the recording dropped what a budget had no room for.
  std::optional<StepReadings> readings() { return std::move(readings_); }
  // Once the step has ended, or thrown. (A tape keeps its observers, and a graph the tape.)
  void stop_measuring() { meter_.reset(); }
  // For each op of the graph, its index in the region, as OpContext::index().
  const std::vector<int64_t>& indices() const { return indices_; }
  // For each op of the graph, whether its decision is a MUST.
  const std::vector<bool>& decided_within() const { return decided_within_; }
  // For each value of the graph, the device that its bytes are on. Null if no op of the graph made it, or if its bytes
  // lie in no plain storage of its own.
  const std::vector<std::optional<c10::Device>>& devices() const { return devices_; }
  // The same of the storage, which may have died since: it is to be compared alone.
  const std::vector<const c10::StorageImpl*>& storages() const { return storages_; }

 private:
  class MeteredCall;

  uint32_t id_of(const Value& value);
  void append(StepGraph::Event::Kind kind, uint32_t index);
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
  std::vector<const c10::StorageImpl*> storages_;
  absl::flat_hash_map<const Value*, uint32_t> ids_;
  absl::flat_hash_map<const TapeHook*, uint32_t> hooks_;
  double cost_ = 0;
  int graph_task_ = -1;
  std::unique_ptr<StepMeter> meter_;  // may be null
  std::optional<StepReadings> readings_;
  Tape* tape_ = nullptr;
};

}  // namespace ac2::internal

// The log behind ScopeOptions::timeline: an observer that writes down everything that happens on a tape, as a TraceLog.
//
//   timeline->add_scope(id, depth, "recompute_all");
//   const TraceLog log = *timeline->log();             // with the tape's lock
//
// The timeline grows with the region, by about 800 bytes for an op that is replayed once, and keeps no tensor.
//
// Rejected: reading the log of the profiler (it knows nothing of decisions, and has to be on); a timeline that is
// always kept (it grows with the region, and reads clocks).
//
// Threads: as Observer. add_scope() needs the tape's lock.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "ac2/internal/graph/node.h"
#include "ac2/internal/observe/shared_bytes.h"
#include "ac2/internal/observe/trace_log.h"
#include "ac2/internal/tape/observer.h"
#include "ac2/internal/tape/tape.h"

namespace ac2::internal {

class Timeline final : public Observer {
 public:
  // Begins with what `tape` holds already, and observes it from now on. Takes its lock.
  static std::shared_ptr<Timeline> start(Tape& tape);

  // A policy, by its id in the PolicyStack. A policy that is known already is left as it is.
  void add_scope(int64_t id, int64_t depth, const std::string& policy);
  const TraceLog* log() const override { return &log_; }

  void node_recorded(const Node& node, const PolicyDecision& decision, int64_t scope_id, double cost) override;
  void tensor_seen(const Value& value, const at::Tensor& tensor) override;
  void decided_again(const Value& value, const PolicyDecision& decision, DecidedBy by) override;
  void decision_changed(const Value& value) override { at(value).saved = value.decided() == Decided::kSave; }
  void anchored(const Value& value) override;
  void bytes_changed(const ByteChange& change) override;
  void hook_added(const TapeHook& hook, const Value& value) override;
  void hook_removed(const TapeHook& /*hook*/, const Value& value) override { at(value).hooks = value.hooks(); }
  void value_died(const Value& value) override { places_.erase(&value); }
  void backward_begins(int graph_task) override;
  void backward_ends(int graph_task) override;
  void region_closed() override;

  std::unique_ptr<CallObservation> observe_call(const OpFacts& facts, int64_t index) override;
  std::unique_ptr<UnpackObservation> observe_unpack(const Value& value) override;
  std::unique_ptr<ReplayObservation> observe_replay(const Node& node) override;

 private:
  class TimedCall;
  class TimedUnpack;
  class TimedReplay;

  // The cause of replays: a value that autograd asked for, and the autograd node that asked.
  struct Asker {
    int64_t value = TraceLog::kNone;
    std::string consumer;
  };
  // Storages of which the tape has no value, and the op that wrote them last. Weak, so that no other gets the address.
  struct Writer {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    int64_t op;
  };

  explicit Timeline(Tape& tape);
  // The tape's lock is held.
  void log_what_is_held(LockedTape& tape);
  // Where the value stands in the log; added if it is new.
  int64_t place(const Value& value);
  TraceLog::Value& at(const Value& value) { return log_.values[place(value)]; }
  int64_t place_of_op(int64_t index) const;
  // Notes the limit of the bytes that count, and the allocated bytes where these are limited.
  void note_bound(TraceLog::Event& event) const;
  // Without the lock: how much is allocated on accelerators, where that is limited. An accelerator's allocator has a
  // lock of its own, and waits for the tape's with it in a shortage. So events have the bytes of the last call.
  void note_accelerator_bytes();

  Tape& tape_;
  TraceLog log_;
  absl::flat_hash_map<const Value*, int64_t> places_;
  absl::flat_hash_map<int64_t, int64_t> scope_places_;
  absl::flat_hash_map<const c10::StorageImpl*, Writer> writers_;
  std::vector<std::pair<int, size_t>> backwards_;  // graph task and place in the log of those under way
  Asker asker_;
  SharedBytes shared_;
  int64_t accelerator_bytes_ = 0;
};

}  // namespace ac2::internal

// A class that watches what happens on a tape. The timeline, the verifier and the planner's step log are observers
// (see //ac2/internal/observe); a further one is a class of its own and a line where regions are opened.
//
//   class MissCounter final : public Observer {
//    public:
//     void bytes_changed(const ByteChange& change) override { evictions_ += change.kind == ByteChange::Kind::kEvict; }
//     …
//   };
//
// Each function does nothing unless an observer overrides it. A tape without observers pays one look at a pointer.
//
// Threads: functions of the first group are called with the tape's lock, and must neither run an op nor destroy an
// object of the user's. Those of the second group are called without it, and may do both.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Storage.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "ac2/internal/graph/node.h"
#include "ac2/internal/operators/cost_source.h"
#include "ac2/policy.h"

namespace ac2::internal {

class Tape;
class TapeHook;
struct TraceLog;

// A change of the bytes that a tape holds, or of a number beside them. The two sums are those of TraceStats after it.
struct ByteChange {
  enum class Kind : uint8_t {
    kHold,     // held for backward from now on
    kRelease,  // no longer
    kReplay,   // replayed bytes come into being
    kDrop,     // replayed bytes go
    kEvict,    // a memory budget drops the value; the changes after this one count its bytes
    kCopy,     // bytes were copied before they were overwritten; the changes beside this one count them
    kPack,     // so many bytes are held in a form of a policy's from now on, as what the next kHold says
    kOffload,  // so many bytes are in another memory from now on, or on the way there, and are not held
  };
  const Value& value;
  Kind kind;
  int64_t bytes;
  int64_t saved_bytes;
  int64_t recomputed_bytes;
};

// A call in forward, from its beginning to its end, exceptions included.
class CallObservation {
 public:
  virtual ~CallObservation() = default;
  // Called before the op runs, unless it is a view or is never recomputed. May throw.
  virtual void takes(c10::ArrayRef<c10::IValue> /*arguments*/) {}
  // The op has just returned.
  virtual void ran() {}
  // Called before the call is recorded. May throw, and the call is not recorded then.
  virtual void check() {}
  // Called after the call has been recorded, or left out, with the results and the tensors that the op wrote to.
  virtual void recorded(c10::ArrayRef<c10::IValue> /*results*/, c10::ArrayRef<at::Tensor> /*written*/) {}
};

// A replay of a node.
class ReplayObservation {
 public:
  virtual ~ReplayObservation() = default;
  virtual void ran() {}
  // `storages[i]` holds what the replay made of node.outputs[i], or nothing if that is not wanted. May throw.
  virtual void check(c10::ArrayRef<c10::Storage> /*storages*/) {}
};

// An unpacking of what autograd saved. Replays on this thread are for it while it lives.
class UnpackObservation {
 public:
  virtual ~UnpackObservation() = default;
};

class Observer {
 public:
  enum class DecidedBy : uint8_t { kTag, kName };

  Observer() = default;
  virtual ~Observer() = default;
  Observer(const Observer&) = delete;
  Observer& operator=(const Observer&) = delete;

  // Whether a clock or a model is to give the costs that node_recorded() is told; null if the observer needs no costs.
  virtual std::optional<CostSource> costs() const { return std::nullopt; }
  // Whether the observer knows values by their producers, so that hooks must not go over from one value to another.
  virtual bool tells_values_apart() const { return false; }
  // Whether check() of its observations of replays wants to see what they made.
  virtual bool checks_replays() const { return false; }
  // The whole history, if it keeps one; needs the tape's lock.
  virtual const TraceLog* log() const { return nullptr; }

  // --- with the tape's lock -----------------------------------------------------------------------------------------

  // A finished node that has results. `scope_id` is the id in the PolicyStack of the policy that decided, or -1.
  virtual void node_recorded(const Node& /*node*/, const PolicyDecision& /*decision*/, int64_t /*scope_id*/,
                             double /*cost*/) {}
  virtual void tensor_seen(const Value& /*value*/, const at::Tensor& /*tensor*/) {}
  // Called before a tag or a name takes effect.
  virtual void decided_again(const Value& /*value*/, const PolicyDecision& /*decision*/, DecidedBy /*by*/) {}
  // Value::decided() has changed.
  virtual void decision_changed(const Value& /*value*/) {}
  // `value`, which is alive, can no longer be recomputed; see anchors.h.
  virtual void anchored(const Value& /*value*/) {}
  // The original, which forward computed, is about to be overwritten.
  virtual void overwritten(const Value& /*value*/) {}
  // The bytes that the tape holds of `value`, if any, are about to go.
  virtual void before_drop(const Value& /*value*/) {}
  // Called after the change: the value is in its new state already, for kRelease and kDrop too.
  virtual void bytes_changed(const ByteChange& /*change*/) {}
  // Called after Value::hooks has changed.
  virtual void hook_added(const TapeHook& /*hook*/, const Value& /*value*/) {}
  virtual void hook_removed(const TapeHook& /*hook*/, const Value& /*value*/) {}
  // Autograd takes a tensor out; `graph_task` is -1 outside backward.
  virtual void hook_taken(const TapeHook& /*hook*/, int /*graph_task*/) {}
  virtual void value_died(const Value& /*value*/) {}
  virtual void backward_begins(int /*graph_task*/) {}
  virtual void backward_ends(int /*graph_task*/) {}
  virtual void region_closed() {}

  // --- without it ---------------------------------------------------------------------------------------------------

  // Each may return null.
  virtual std::unique_ptr<CallObservation> observe_call(const OpFacts& /*facts*/, int64_t /*index*/) { return nullptr; }
  virtual std::unique_ptr<UnpackObservation> observe_unpack(const Value& /*value*/) { return nullptr; }
  virtual std::unique_ptr<ReplayObservation> observe_replay(const Node& /*node*/) { return nullptr; }
  // Autograd is about to save `tensor`. May throw.
  virtual void before_save(const at::Tensor& /*tensor*/) {}
  // The tensor that the pack function of a SaveWithHooks is given, and the one that its unpack function made of it.
  virtual void before_pack(const Value& /*value*/, const at::Tensor& /*tensor*/) {}
  virtual void after_unpack(const Value& /*value*/, const c10::Storage& /*storage*/) {}
};

}  // namespace ac2::internal

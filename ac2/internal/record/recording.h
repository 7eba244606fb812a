// A call that is being recorded, with what is known of it before it runs and what becomes of its results.
//
//   Recording recording(region, facts, keys, tls_keys, index, arguments);
//   recording.run(watch, [&] { …run the op…; return results; });
//
// If something throws on the way, the op is simply not in the tape.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/ivalue.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/ApproximateClock.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "ac2/internal/libtorch/onednn_watch.h"
#include "ac2/internal/libtorch/op_environment.h"
#include "ac2/internal/operators/op_facts.h"
#include "ac2/internal/record/call_watch.h"
#include "ac2/internal/record/node_builder.h"
#include "ac2/internal/record/outlook.h"
#include "ac2/internal/record/overwrite.h"
#include "ac2/internal/region/region.h"
#include "ac2/internal/replay/pending_work.h"

namespace ac2::internal {

class Recording {
 public:
  // `keys` are those below kRecordKey; `tls_keys`, which must outlive it, is the dispatch state that the call found.
  Recording(Region& region, const OpFacts& facts, c10::DispatchKeySet keys,
            const c10::impl::PODLocalDispatchKeySet& tls_keys, int64_t index, c10::ArrayRef<c10::IValue> arguments);

  Budget* budget() { return budget_; }
  // Whether policies, and so code of the program, are asked about the call when it has run.
  bool asks_policies() const { return !known_; }
  // As far as it is known before the op has run.
  const Outlook& outlook() const { return call_.outlook; }
  void set_writes(const Overwrites* writes) { call_.writes = writes; }
  // When the op has run, if it has drawn. `draws` outlives the recording.
  void set_draws(const Draws* draws) { call_.draws = draws; }

  // Calls `op`, which runs the op and returns its results, as one c10::IValue or an ArrayRef of them, and writes the
  // call into the tape. Then values are packed and the budget is met, which may run user code. Returns the result of
  // `op`. `watch` is null if nobody watches.
  template <class Op>
  auto run(CallWatch* watch, Op&& op) {
    if (!call_.facts.is_pointwise) {
      note_environment();
    }
    const OneDnnWatch onednn(call_.facts.reads_precision);
    const c10::approx_time_t started = timed_ ? c10::getApproximateTime() : 0;
    auto returned = op();
    if (C10_UNLIKELY(onednn.was_switched_off())) {
      note_environment();  // the op was computed without it
    }
    call_.results = c10::ArrayRef<c10::IValue>(returned);
    if (timed_) {
      elapsed_ = c10::getApproximateTime() - started;
    }
    if (watch != nullptr) {
      watch->ran();
      watch->check();
    }
    if (add_node() && watch != nullptr) {
      watch->recorded(call_.results, call_.writes);
    }
    pending_.settle(*tape_, [this] { return call_.facts.name; });
    return returned;
  }

 private:
  void note_environment() {
    call_.environment = OpEnvironment::here(call_.facts.reads_precision ? OpEnvironment::Reach::kPrecision
                                                                        : OpEnvironment::Reach::kSwitches);
  }

  // The facts about all results, found in one walk over them.
  struct ResultsSeen {
    bool any = false;         // that is defined
    bool any_shared = false;  // of which there is another handle
    int64_t numel = 0;        // of an elementwise op
  };

  // False if there is nothing to record.
  bool add_node();
  void add_node_after_foreign_reads();
  ResultsSeen look_at_results() const;
  static OpEnvironment::Reach reach_of_pointwise(int64_t numel);
  void decide_after_op();
  void find_how_costs_are_known();
  double cost() const;

  const std::shared_ptr<Tape> tape_;  // a policy or an op may destroy the scope of the region; the tape stays
  Region& region_;
  const c10::impl::PODLocalDispatchKeySet& tls_keys_;
  Budget* const budget_;
  // A copy, because an op may open scopes of its own. Null if a policy wants to see the call.
  std::optional<ResolvedDecision> known_;
  bool modelled_ = false;
  bool timed_ = false;
  c10::approx_time_t elapsed_ = 0;
  RecordedCall call_;
  PendingWork pending_;
};

}  // namespace ac2::internal

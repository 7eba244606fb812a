// One call that is being recorded: what is known of it before it runs, and what becomes of its results.
//
//   Recording recording(region, facts, keys, tls_keys, index);
//   Recording::Call call{.arguments = …};
//   recording.run(call, [&] { …run the op…; return results; });
//
// If something throws on the way, what was run is simply not in the tape.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/ivalue.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/ApproximateClock.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/SmallVector.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "ac2/internal/libtorch/op_environment.h"
#include "ac2/internal/operators/op_facts.h"
#include "ac2/internal/record/call_watch.h"
#include "ac2/internal/record/overwrite.h"
#include "ac2/internal/region/region.h"

namespace ac2::internal {

struct RecordedCall;

class Recording {
 public:
  struct Call {
    c10::ArrayRef<c10::IValue> arguments;
    const Overwrites* writes = nullptr;  // null if it writes nothing
    CallWatch* watch = nullptr;          // null if nobody watches
    RandomState random_state = {};       // before the op, if it draws and may have to be replayed; `op` may set it
  };

  // `keys` are those below kRecordKey; `tls_keys`, which must outlive it, is the dispatch state that the call found.
  Recording(Region& region, const OpFacts& facts, c10::DispatchKeySet keys,
            const c10::impl::PODLocalDispatchKeySet& tls_keys, int64_t index);

  // A policy or an op may destroy the scope of the region; the tape stays.
  Tape& tape() { return *tape_; }
  Budget* budget() { return budget_; }
  // Whether policies, and so code of the program, are asked about the call when it has run.
  bool asks_policies() const { return !known_; }
  // Whether results may have to be computed again, as far as is known before the op has run.
  bool may_recompute() const;
  // The same, because a name may say so later.
  bool names_decide() const { return names_decide_; }
  // Whether it is known that results will be saved by reference. If offloads(), those that may leave their device are
  // not.
  bool saves_in_place() const { return known_ && !may_recompute() && !known_->decision.hooks(); }
  bool offloads() const { return known_ && known_->decision.offloads(); }

  // Calls `op`, which runs the op and returns its results, as one c10::IValue or an ArrayRef of them, and writes the
  // call into the tape. Then values are packed and the budget is met, which may run user code. Returns the result of
  // `op`.
  template <class Op>
  auto run(Call& call, Op&& op) {
    if (!facts_.is_pointwise) {
      environment_ = OpEnvironment::here(facts_.reads_precision ? OpEnvironment::Reach::kPrecision
                                                                : OpEnvironment::Reach::kSwitches);
    }
    const c10::approx_time_t started = timed_ ? c10::getApproximateTime() : 0;
    auto returned = op();
    const c10::ArrayRef<c10::IValue> results(returned);
    if (timed_) {
      elapsed_ = c10::getApproximateTime() - started;
    }
    // How much such an op looks at depends on how large its results are. It changes nothing itself.
    if (facts_.is_pointwise) {
      environment_ = OpEnvironment::here(reach_of_pointwise(results));
    }
    if (call.watch != nullptr) {
      call.watch->ran();
      call.watch->check();
    }
    if (add_node(call, results)) {
      if (call.watch != nullptr) {
        call.watch->recorded(results, call.writes);
      }
    }
    settle();
    return returned;
  }

 private:
  // False if there is nothing to record.
  bool add_node(const Call& call, c10::ArrayRef<c10::IValue> results);
  void add_node_after_foreign_reads(RecordedCall call);
  void take_packs(LockedTape& tape);
  void settle();
  static OpEnvironment::Reach reach_of_pointwise(c10::ArrayRef<c10::IValue> results);
  void find_how_costs_are_known();
  double cost_of(const Call& call, c10::ArrayRef<c10::IValue> results) const;

  const std::shared_ptr<Tape> tape_;
  Region& region_;
  const OpFacts& facts_;
  const c10::DispatchKeySet keys_;
  const c10::impl::PODLocalDispatchKeySet& tls_keys_;
  const int64_t index_;
  Budget* const budget_;
  // A copy, because an op may open scopes of its own. Null if a policy wants to see the call.
  std::optional<ResolvedDecision> known_;
  const bool names_decide_;
  bool modelled_ = false;
  bool timed_ = false;
  c10::approx_time_t elapsed_ = 0;
  OpEnvironment environment_;
  c10::SmallVector<Value*, 2> packs_;
};

}  // namespace ac2::internal

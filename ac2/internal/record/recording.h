// One call that is being recorded: what is known of it before it runs, and what becomes of its results.
//
//   Recording recording(region, facts, keys, tls_keys, index);
//   recording.begins();
//   …run the op…
//   recording.ran();
//   recording.add_node({.arguments = …, .results = …});
//   recording.settle();
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

#include "ac2/internal/operators/op_facts.h"
#include "ac2/internal/record/overwrite.h"
#include "ac2/internal/region/region.h"

namespace ac2::internal {

class Recording {
 public:
  struct Call {
    c10::ArrayRef<c10::IValue> arguments;
    c10::ArrayRef<c10::IValue> results;
    const Overwrites* writes = nullptr;
    RandomState random_state = {};
  };

  // `keys` are those below kRecordKey; `tls_keys`, which must outlive it, is the dispatch state that the call found.
  Recording(Region& region, const OpFacts& facts, c10::DispatchKeySet keys,
            const c10::impl::PODLocalDispatchKeySet& tls_keys, int64_t index);

  // The region may be closed by a scope that a policy or an op destroys; the tape stays.
  Tape& tape() { return *tape_; }
  Budget* budget() { return budget_; }
  // Whether results may have to be computed again, as far as is known before the op has run.
  bool may_recompute() const;
  // The same, because a name may say so later.
  bool names_decide() const { return names_decide_; }
  // Whether it is known that they will be saved by reference, those left out that may leave their device if offloads().
  bool saves_in_place() const { return known_ && !may_recompute() && !known_->decision.hooks(); }
  bool offloads() const { return known_ && known_->decision.offloads(); }

  void begins() {
    if (timed_) {
      started_ = c10::getApproximateTime();
    }
  }
  void ran() {
    if (timed_) {
      elapsed_ = c10::getApproximateTime() - started_;
    }
  }
  // False if there is nothing to record.
  bool add_node(const Call& call);
  // Packs what is to be packed, and keeps the budget. Runs user code.
  void settle();

 private:
  double cost_of(const Call& call) const;

  const std::shared_ptr<Tape> tape_;
  Region& region_;
  const OpFacts& facts_;
  const c10::DispatchKeySet keys_;
  const c10::impl::PODLocalDispatchKeySet& tls_keys_;
  const int64_t index_;
  Budget* const budget_;
  // A copy: an op may open scopes of its own. Null if a policy wants to see the call.
  std::optional<ResolvedDecision> known_;
  const bool names_decide_;
  bool modelled_ = false;
  bool timed_ = false;
  c10::approx_time_t started_ = 0;
  c10::approx_time_t elapsed_ = 0;
  c10::SmallVector<Value*, 2> packs_;
};

}  // namespace ac2::internal

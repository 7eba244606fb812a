// Values that are copied to the host's memory before there is no room for them, so that they may be dropped without
// being computed again.
//
//   HostCopies copies(evictor, foresight, costs);   // also Evictor::Advisers::copies
//   copies.set_speed(bytes_per_cost);               // as soon as it is known
//   copies.may_copy(value);                         // once its bytes are held
//   // Room is about to get scarce:
//   copies.settle();
//   for (ValueId v = copies.next(); v != kNoId; v = copies.next()) { …begin to copy… copies.began(v); }
//   // There is no room:
//   ValueId victim = evictor.next_victim();
//   if (copies.is_worth_waiting_for(victim)) victim = copies.wait_for_first();
//   evictor.set_place(victim, copies.has_copy(victim) ? Place::kOnHost : Place::kNowhere);
//
// At most kUnderWay copies are under way at once. The next one is of the value that costs most to compute again for its
// bytes, unless it was used, or will be used, within the time that it takes to copy it there and back. A value whose
// copy is done stays where it is until the evictor chooses it. To drop it costs no more than what of its way back does
// not fit beside the ops.
//
// The clock is the evictor's, in units of cost, and the speed is in bytes for such a unit: a program that runs ahead of
// its device cannot ask the device how far it is. Until the speed is known the caller says when a copy is done.
//
// Guaranteed: the same calls give the same answers. A copy stays valid, because values never change. Misuse throws
// std::logic_error. Threads: not thread-safe. The runtime calls it under the mutex of its Budget.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "absl/container/btree_set.h"
#include "ac2/internal/eviction/evictor.h"
#include "ac2/internal/eviction/evictor_ids.h"
#include "ac2/internal/eviction/foresight.h"
#include "ac2/internal/eviction/form_costs.h"
#include "ac2/internal/eviction/return_costs.h"

namespace ac2::internal {

class HostCopies final : public ReturnCosts {
 public:
  static constexpr size_t kUnderWay = 2;
  // Copies begin when more bytes than these are held under the budget: a quarter of it is free.
  static int64_t most_without(int64_t budget) { return budget - budget / 4; }
  // Values that were copied back ahead of their use take no more bytes than these beside the budget: an eighth of it.
  static int64_t most_ahead(int64_t budget) { return budget / 8; }

  // All must outlive it.
  HostCopies(Evictor& evictor, const Foresight& foresight, FormCosts& costs)
      : evictor_(evictor), foresight_(foresight), costs_(costs) {}

  // Must be positive.
  void set_speed(double bytes_per_cost);
  bool knows_speed() const { return costs_.knows_copy_speed(); }

  // A result of an op, which can be computed again, may be copied from now on.
  void may_copy(ValueId value);
  // The value may not be copied any more, or is gone. A copy of it does not count.
  void forget(ValueId value);

  // The value whose copy is to begin now, or kNoId.
  ValueId next();
  // Its copy is under way. The evictor does not choose it meanwhile.
  void began(ValueId value);
  // Notes the copies that are done by the clock.
  void settle();
  // Of the copies that are under way, the value of the one that began first; kNoId if there is none.
  ValueId first_under_way() const { return under_way_.empty() ? kNoId : under_way_.front().value; }
  // The caller knows that this copy is done.
  void first_is_done();

  bool is_under_way(ValueId value) const { return is(value, State::kUnderWay); }
  bool has_copy(ValueId value) const { return is(value, State::kCopied); }
  // Whether a value on the host takes less time to compute again than to copy back, if that begins after `queued` time.
  bool is_cheaper_to_compute(ValueId value, double queued = 0) const;
  // Whether it costs less to wait for the first copy than to drop `victim`, which may be kNoId. False if no copy is
  // under way.
  bool is_worth_waiting_for(ValueId victim) const;
  // The program waits until the first copy is done. Returns its value, which may be dropped now.
  ValueId wait_for_first();
  // For how long the program has waited, in all.
  double waited() const { return waited_; }

  double cost_of_return(ValueId value) const override;
  // The sum of the evictor's clock, which stands still while the program waits, and of the time that it has waited.
  double now() const { return evictor_.time() + waited_; }

 private:
  enum class State : uint8_t { kMayNot, kMay, kUnderWay, kCopied };
  struct Copy {
    ValueId value = kNoId;
    double done = 0;
  };

  bool is(ValueId value, State state) const { return value < states_.size() && states_[value].state == state; }
  double time_of_copy(ValueId value) const;
  // The time of the way back that does not fit beside the ops.
  double cost_of_way_back(ValueId value) const;
  // Whether it is not used within the time that it takes to copy it there and back.
  bool is_idle(ValueId value) const;
  void remove_candidate(ValueId value);

  struct ValueState {
    State state = State::kMayNot;
    double worth = 0;  // its cost for its bytes, while it is among the candidates
  };

  Evictor& evictor_;
  const Foresight& foresight_;
  FormCosts& costs_;
  double waited_ = 0;
  double free_at_ = 0;  // when the copies that are under way are done
  std::vector<ValueState> states_;
  absl::btree_set<std::pair<double, ValueId>> candidates_;  // the worth is negative: the dearest comes first
  std::deque<Copy> under_way_;
};

}  // namespace ac2::internal

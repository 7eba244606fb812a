// Values that may be held in a narrower form in place of being dropped, and what that costs.
//
//   NarrowForms forms(evictor);                     // also Evictor::Options::narrowing
//   forms.may_narrow(value);                        // once its bytes are held
//   // There is no room:
//   ValueId victim = evictor.next_victim();
//   if (forms.is_better_than_dropping(victim)) {
//     …make the form…
//     evictor.set_place(victim, Place::kNarrowed, narrow_bytes);
//     forms.narrowed(victim, narrow_bytes, cost);
//   }
//
// A form frees fewer bytes than a drop, so its cost is counted for as many bytes as a drop frees: a form of a quarter
// of the bytes counts a third more. The next form is taken to cost as much for a byte, and to leave the same share of
// the bytes, as those before. Until there was one, expect() may say what it will come to. Where nothing is known, the
// first victim that may get a form gets one.
//
// Guaranteed: the same calls give the same answers. Threads: not thread-safe. The runtime calls it under the mutex of
// its Budget.
#pragma once

#include <cstdint>
#include <vector>

#include "ac2/internal/eviction/copy_costs.h"
#include "ac2/internal/eviction/evictor.h"
#include "ac2/internal/eviction/evictor_ids.h"

namespace ac2::internal {

class NarrowForms final : public CopyCosts {
 public:
  // The evictor must outlive it.
  explicit NarrowForms(Evictor& evictor) : evictor_(evictor) {}

  // A form of a value of so many bytes will come to as much as narrowed() says, for all that is known before the first.
  void expect(int64_t bytes, int64_t narrow_bytes, double cost);
  // The value's bytes are held, and may be held in a narrower form from now on.
  void may_narrow(ValueId value);
  // They may not, or the value is gone.
  void forget(ValueId value);
  // Whether to narrow the victim costs less, for the bytes that it frees, than to drop it. Never true of a value that
  // nothing needs, and always of one that is kept to the last.
  bool is_better_than_dropping(ValueId victim);
  // The value has a form of so many bytes, for which packing and unpacking costs as much as `cost`.
  void narrowed(ValueId value, int64_t narrow_bytes, double cost);

  // Whether any value has been narrowed so far.
  bool has_narrowed() const { return has_narrowed_; }

  // Of packing and unpacking where the value may get a form, for the bytes that a drop would free; of unpacking where
  // the value has its bytes and a form.
  double cost_of_return(ValueId value) const override;

 private:
  bool knows_cost() const { return packed_bytes_ > 0; }
  bool may(ValueId value) const { return value < may_.size() && may_[value]; }
  void add(double bytes, double narrow_bytes, double cost);

  Evictor& evictor_;
  std::vector<bool> may_;
  bool has_narrowed_ = false;
  // Of all forms so far.
  double cost_ = 0;
  double packed_bytes_ = 0;
  double narrow_bytes_ = 0;
};

}  // namespace ac2::internal

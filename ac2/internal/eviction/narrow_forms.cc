#include "ac2/internal/eviction/narrow_forms.h"

#include <algorithm>
#include <limits>

namespace ac2::internal {

namespace {

// Of the cost of packing and unpacking. Unpacking takes less time than packing in all forms that ac2 has.
constexpr double kUnpackingShare = 0.25;
// Forms of nearly all bytes free nearly nothing.
constexpr double kLeastFreedShare = 1.0 / 64;

}  // namespace

void NarrowForms::may_narrow(ValueId value) {
  if (value >= may_.size()) {
    may_.resize(value + 1);
  }
  if (!may_[value]) {
    may_[value] = true;
    evictor_.copy_changed(value);
  }
}

void NarrowForms::forget(ValueId value) {
  if (may(value)) {
    may_[value] = false;
    evictor_.copy_changed(value);
  }
}

void NarrowForms::expect(int64_t bytes, int64_t narrow_bytes, double cost) {
  // As one byte, so that what is found out counts far more.
  const auto all = static_cast<double>(bytes);
  add(1, static_cast<double>(narrow_bytes) / all, cost / all);
}

void NarrowForms::add(double bytes, double narrow_bytes, double cost) {
  packed_bytes_ += bytes;
  narrow_bytes_ += narrow_bytes;
  cost_ += cost;
}

void NarrowForms::narrowed(ValueId value, int64_t narrow_bytes, double cost) {
  const bool knew_none = !knows_cost();
  forget(value);
  has_narrowed_ = true;
  add(static_cast<double>(evictor_.graph().value(value).bytes), static_cast<double>(narrow_bytes), cost);
  for (ValueId other = 0; knew_none && other < may_.size(); ++other) {
    if (may_[other]) {
      evictor_.copy_changed(other);
    }
  }
}

double NarrowForms::cost_of_return(ValueId value) const {
  const bool has_form = evictor_.narrow_bytes(value) > 0;
  if (!knows_cost() || (has_form ? evictor_.place(value) != Place::kHeld : !may(value))) {
    return std::numeric_limits<double>::infinity();
  }
  const double both_ways = cost_ / packed_bytes_ * static_cast<double>(evictor_.graph().value(value).bytes);
  return has_form ? both_ways * kUnpackingShare
                  : both_ways / std::max(1 - narrow_bytes_ / packed_bytes_, kLeastFreedShare);
}

bool NarrowForms::is_better_than_dropping(ValueId victim) {
  if (!may(victim) || evictor_.narrow_bytes(victim) > 0 || !evictor_.is_needed(victim)) {
    return false;
  }
  return !knows_cost() || evictor_.is_kept_last(victim) || cost_of_return(victim) < evictor_.cost_of_computing(victim);
}

}  // namespace ac2::internal

#include "ac2/internal/eviction/form_costs.h"

#include <algorithm>

#include "ac2/internal/eviction/evictor_check.h"

namespace ac2::internal {

namespace {

// Forms of nearly all bytes free nearly nothing.
constexpr double kLeastFreedShare = 1.0 / 64;

}  // namespace

void FormCosts::add(uint8_t form, double bytes, double packed_bytes, double pack_cost, double unpack_cost) {
  Known& known = forms_[form];
  known.bytes += bytes;
  known.packed_bytes += packed_bytes;
  known.pack_cost += pack_cost;
  known.unpack_cost += unpack_cost;
}

void FormCosts::expect(uint8_t form, int64_t bytes, const Packed& packed) {
  if (!knows(form)) {
    // As one byte, so that what is found out counts far more.
    const auto all = static_cast<double>(bytes);
    add(form, 1, static_cast<double>(packed.bytes) / all, packed.pack_cost / all, packed.unpack_cost / all);
  }
}

bool FormCosts::packed(uint8_t form, int64_t bytes, const Packed& packed) {
  const bool is_first = !knows(form);
  add(form, static_cast<double>(bytes), static_cast<double>(packed.bytes), packed.pack_cost, packed.unpack_cost);
  return is_first;
}

double FormCosts::for_freed(uint8_t form, int64_t bytes) const {
  const Known& known = forms_[form];
  const double both_ways = (known.pack_cost + known.unpack_cost) / known.bytes * static_cast<double>(bytes);
  return both_ways / std::max(1 - known.packed_bytes / known.bytes, kLeastFreedShare);
}

double FormCosts::of_unpacking(uint8_t form, int64_t bytes) const {
  const Known& known = forms_[form];
  return known.unpack_cost / known.bytes * static_cast<double>(bytes);
}

void FormCosts::set_copy_speed(double bytes_per_cost) {
  evictor_check(bytes_per_cost > 0, "copies need a speed that is positive");
  cost_per_copied_byte_ = 1 / bytes_per_cost;
}

}  // namespace ac2::internal

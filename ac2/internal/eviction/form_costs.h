// FormCosts learns what forms cost from the values that were in them: of each form the bytes that stay and the costs of
// packing and unpacking, and of copies to the host the speed of their queue. A budget has one, by which HostCopies and
// PackingForms go.
//
//   FormCosts costs;
//   costs.packed(form, bytes, {.bytes = packed_bytes, .pack_cost = …, .unpack_cost = …});
//   costs.set_copy_speed(bytes_per_cost);
//   if (costs.knows(form) && costs.for_freed(form, bytes) < cost_of_computing) …
//
// To pack a value frees fewer bytes than to drop it, so its cost is counted for as many bytes as a drop frees: a form
// of a quarter of the bytes counts a third more. The next value is taken to cost as much for a byte in a form, and to
// leave the same share of the bytes, as those before. Until there was one, expect() may say what it will come to.
//
// Costs are in the evictor's unit. Guaranteed: the same calls give the same answers. Threads: not thread-safe. The
// runtime calls it under the mutex of its Budget.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace ac2::internal {

class FormCosts {
 public:
  // Forms are numbered from 0 to below this.
  static constexpr size_t kMost = 32;

  // A value in a form.
  struct Packed {
    int64_t bytes = 0;
    double pack_cost = 0;
    double unpack_cost = 0;
  };

  // --- forms ---

  // Nothing is known of the form any more. No value may have it.
  void start_anew(uint8_t form) { forms_[form] = {}; }
  // In the form a value of so many bytes will come to this, for all that is known before the first.
  void expect(uint8_t form, int64_t bytes, const Packed& packed);
  // A value of so many bytes has come to this. Whether it is the first thing that is known of the form.
  bool packed(uint8_t form, int64_t bytes, const Packed& packed);
  bool knows(uint8_t form) const { return forms_[form].bytes > 0; }
  // Of packing and unpacking a value of so many bytes, for the bytes that a drop would free. The form must be known.
  double for_freed(uint8_t form, int64_t bytes) const;
  double of_unpacking(uint8_t form, int64_t bytes) const;

  // --- copies to the host ---

  // Must be positive.
  void set_copy_speed(double bytes_per_cost);
  bool knows_copy_speed() const { return cost_per_copied_byte_ > 0; }
  // 0 while the speed is not known.
  double of_copying(int64_t bytes) const { return static_cast<double>(bytes) * cost_per_copied_byte_; }

 private:
  // Of all values in a form so far.
  struct Known {
    double bytes = 0;  // before they were packed
    double packed_bytes = 0;
    double pack_cost = 0, unpack_cost = 0;
  };

  void add(uint8_t form, double bytes, double packed_bytes, double pack_cost, double unpack_cost);

  std::array<Known, kMost> forms_;
  double cost_per_copied_byte_ = 0;
};

}  // namespace ac2::internal

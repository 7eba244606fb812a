// Values that may be packed in place of being dropped, in which of several forms, and what that costs.
//
//   PackingForms forms(evictor);                    // also Evictor::Advisers::packing
//   forms.may_pack(value, {0, 2});                  // once its bytes are held: in the forms 0 and 2
//   // There is no room:
//   ValueId victim = evictor.next_victim();
//   if (std::optional<uint8_t> form = forms.better_than_dropping(victim)) {
//     …pack…
//     evictor.set_place(victim, Place::kPacked, packed_bytes);
//     forms.packed(victim, *form, {.bytes = packed_bytes, .pack_cost = …, .unpack_cost = …});
//   }
//
// To pack a value frees fewer bytes than to drop it, so its cost is counted for as many bytes as a drop frees: a form
// of a quarter of the bytes counts a third more. The next value is taken to cost as much for a byte in a form, and to
// leave the same share of the bytes, as those before. Until there was one, expect() may say what it will come to. A
// form of which nothing is known is given to the first victim that may have it.
//
// Guaranteed: the same calls give the same answers. Threads: not thread-safe. The runtime calls it under the mutex of
// its Budget.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "ac2/internal/eviction/evictor.h"
#include "ac2/internal/eviction/evictor_ids.h"
#include "ac2/internal/eviction/return_costs.h"

namespace ac2::internal {

class PackingForms final : public ReturnCosts {
 public:
  // Forms are numbered from 0 to below this.
  static constexpr size_t kMost = 32;
  // A bit for each of some forms.
  using Set = uint32_t;
  static constexpr Set bit(uint8_t form) { return Set{1} << form; }

  // A value in a form.
  struct Packed {
    int64_t bytes = 0;
    double pack_cost = 0;
    double unpack_cost = 0;
  };

  // The evictor must outlive it.
  explicit PackingForms(Evictor& evictor) : evictor_(evictor) {}

  // Nothing is known of the form any more. No value may have it.
  void start_anew(uint8_t form) { forms_[form] = {}; }
  // In the form a value of so many bytes will come to this, for all that is known before the first.
  void expect(uint8_t form, int64_t bytes, const Packed& packed);
  // The value's bytes are held, and it may be packed in these forms from now on.
  void may_pack(ValueId value, Set forms);
  // The value may be packed in none, or is gone.
  void forget(ValueId value) { may_pack(value, 0); }
  // The form does not take the value.
  void refused(ValueId value, uint8_t form);
  // The form in which the victim is to be packed, if that costs less, for the bytes that it frees, than to drop it.
  // Never for a value that nothing needs, and always for one that is kept to the last.
  std::optional<uint8_t> better_than_dropping(ValueId victim);
  void packed(ValueId value, uint8_t form, const Packed& packed);

  // Whether any value has been packed so far.
  bool has_packed() const { return has_packed_; }

  // Of packing and unpacking where the value may be packed, for the bytes that a drop would free; of unpacking where
  // the value has its bytes and was packed before.
  double cost_of_return(ValueId value) const override;

 private:
  // Of all values in a form so far.
  struct Known {
    double bytes = 0;  // before they were packed
    double packed_bytes = 0;
    double pack_cost = 0, unpack_cost = 0;

    bool is_known() const { return bytes > 0; }
  };
  struct State {
    Set may = 0;
    uint8_t form = 0;  // in which it was packed last
  };

  void add(uint8_t form, double bytes, double packed_bytes, double pack_cost, double unpack_cost);
  const State& state(ValueId value) const {
    static constexpr State kNone;
    return value < states_.size() ? states_[value] : kNone;
  }
  // Of packing and unpacking a value of so many bytes, for the bytes that a drop would free.
  double cost_of_packing(uint8_t form, double bytes) const;
  // The known form of the set that costs least.
  std::optional<uint8_t> cheapest(Set forms, double bytes) const;

  Evictor& evictor_;
  std::vector<State> states_;
  std::array<Known, kMost> forms_;
  bool has_packed_ = false;
};

}  // namespace ac2::internal

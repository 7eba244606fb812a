// PackingForms decides in which of several forms a value is packed in place of being dropped.
//
//   PackingForms forms(evictor, costs);             // also Evictor::Advisers::packing
//   forms.may_pack(value, {0, 2});                  // once its bytes are held: in the forms 0 and 2
//   // There is no room:
//   ValueId victim = evictor.next_victim();
//   if (std::optional<uint8_t> form = forms.better_than_dropping(victim)) {
//     …pack…
//     evictor.set_place(victim, Place::kPacked, packed_bytes);
//     forms.packed(victim, *form, {.bytes = packed_bytes, .pack_cost = …, .unpack_cost = …});
//   }
//
// FormCosts says what a form costs. A form of which it knows nothing is given to the first victim that may have it.
//
// Guaranteed: the same calls give the same answers. Threads: not thread-safe. The runtime calls it under the mutex of
// its Budget.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ac2/internal/eviction/evictor.h"
#include "ac2/internal/eviction/evictor_ids.h"
#include "ac2/internal/eviction/form_costs.h"
#include "ac2/internal/eviction/return_costs.h"

namespace ac2::internal {

class PackingForms final : public ReturnCosts {
 public:
  // A bit for each of some forms.
  using Set = uint32_t;
  static constexpr Set bit(uint8_t form) { return Set{1} << form; }

  // Both must outlive it.
  PackingForms(Evictor& evictor, FormCosts& costs) : evictor_(evictor), costs_(costs) {}

  // The value's bytes are held, and it may be packed in these forms from now on.
  void may_pack(ValueId value, Set forms);
  // The value may be packed in none, or is gone.
  void forget(ValueId value) { may_pack(value, 0); }
  // The form does not take the value.
  void refused(ValueId value, uint8_t form);
  // The form in which the victim is to be packed, if that costs less, for the bytes that it frees, than to drop it.
  // Never for a value that nothing needs, and always for one that is kept to the last.
  std::optional<uint8_t> better_than_dropping(ValueId victim);
  void packed(ValueId value, uint8_t form, const FormCosts::Packed& packed);

  // Whether any value has been packed so far.
  bool has_packed() const { return has_packed_; }

  // Where the value may be packed: the cost of packing and unpacking, counted for as many bytes as a drop would free
  // (FormCosts::for_freed()). Where the value was packed before and has its bytes: the cost of unpacking alone.
  double cost_of_return(ValueId value) const override;

 private:
  struct State {
    Set may = 0;
    uint8_t form = 0;  // in which it was packed last
  };

  const State& state(ValueId value) const {
    static constexpr State kNone;
    return value < states_.size() ? states_[value] : kNone;
  }
  // The known form of the set that costs least.
  std::optional<uint8_t> cheapest(Set forms, int64_t bytes) const;

  Evictor& evictor_;
  FormCosts& costs_;
  std::vector<State> states_;
  bool has_packed_ = false;
};

}  // namespace ac2::internal

// Decisions on what becomes of a value: saved or recomputed, and in what form. The op's decision comes first; a tag, a
// name, offloading or a replay may change it.
//
// Threads: guarded by the tape's lock.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <utility>

#include "ac2/internal/graph/node.h"
#include "ac2/internal/tape/lifetimes.h"
#include "ac2/policy.h"

namespace ac2::internal {

class Decisions {
 public:
  Decisions(Lifetimes& lifetimes, ValueBytes& bytes, const Observers& observers)
      : lifetimes_(lifetimes), bytes_(bytes), observers_(observers) {}

  // Writes the decision down and does nothing else. For a result that an op has just made, and for a value under a
  // budget that can be computed again. make_saved() and make_recomputed() are for values that have lived under another
  // decision, and do what follows from the new one.
  void set_decided(Value* value, Decided decided) { value->parts.decided.change() = decided; }
  // A tag decides of the value, and no name does so from now on.
  void set_tagged(Value* value) { value->parts.is_tagged.change() = true; }
  void make_saved(Value* value);
  // `value` is computed again when needed, and so are the values that this takes and that no longer exist. Returns
  // false, and changes nothing, if one of them cannot be computed again or must stay saved: policies say MUST_SAVE of
  // it, or a tag or the budget has decided so.
  bool make_recomputed(Value* value);
  // The replayed bytes of `value` are those of a saved value from now on.
  void save_replayed(Value* value);

  // Sets the form in which a saved value is held; null: by reference. `tensor` lies in the value's storage. Pack will
  // see it if it covers all of the storage, else a flat view of the storage.
  void set_form(Value* value, FormPtr form, const at::Tensor& tensor) {
    set_form_for(FormReason::kPolicy, value, std::move(form), tensor);
  }
  // The same for offloading.
  void set_offload_form(Value* value, FormPtr form, const at::Tensor& tensor) {
    set_form_for(FormReason::kOffload, value, std::move(form), tensor);
  }
  // `value`, which its form does not take, stays as it is, as a saved value like any other.
  void leave_unpacked(Value* value);

 private:
  void set_form_for(FormReason reason, Value* value, FormPtr form, const at::Tensor& tensor);

  Lifetimes& lifetimes_;
  ValueBytes& bytes_;
  const Observers& observers_;
};

}  // namespace ac2::internal

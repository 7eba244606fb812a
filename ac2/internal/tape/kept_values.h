// Values under a memory budget: results that could be computed again are kept, which is to hold them for as long as
// hooks want them and the budget allows.
//
// Threads: guarded by the tape's lock.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/util/intrusive_ptr.h>

#include <memory>
#include <optional>
#include <utility>

#include "ac2/internal/budget/budgeted_tape.h"
#include "ac2/internal/graph/node.h"
#include "ac2/internal/offload/offloaded_value.h"
#include "ac2/internal/tape/decisions.h"
#include "ac2/internal/tape/offloading.h"
#include "ac2/internal/tape/pins.h"
#include "ac2/policy.h"

namespace ac2::internal {

class KeptValues {
 public:
  KeptValues(ValueBytes& bytes, Pins& pins, Decisions& decisions, Offloading& offloading, BudgetShare& budget,
             ByteLedger& ledger)
      : bytes_(bytes), pins_(pins), decisions_(decisions), offloading_(offloading), budget_(budget), ledger_(ledger) {}

  // A finished node whose results can all be computed again, at `cost`, and are kept with this retention.
  void add_call(Node* node, double cost, Retention retention);
  // Where a budget has no room for results of such calls from now on, it may use these forms; null for none. Returns
  // those that were set before.
  std::shared_ptr<const OfferedForms> exchange_offered(std::shared_ptr<const OfferedForms> forms);
  bool offers_forms() const { return offered_ != nullptr && !offered_->forms.empty(); }
  // Values may come to be held in a form that loses something, be it not this one.
  void expect_inexact() { may_be_inexact_ = true; }
  // Values may have been packed into such a form, though perhaps no further ones are.
  bool may_be_inexact() const { return may_be_inexact_; }
  // The results of an op have been saved because of that.
  void note_choice() { has_choices_ = true; }
  bool has_choices() const { return has_choices_; }
  // `tensor` is a result of such a call.
  void offer_forms(Value* value, const at::Tensor& tensor);
  // A hook has come to want the value, after Value::hooks was counted up; or it does so no more. `original` is the
  // value's storage, if the caller has it in its hands and has found it unchanged.
  void add_hook(Value* value, const c10::Storage* original = nullptr);
  void remove_hook(Value* value);
  // A tag decides anew how a droppable value is kept.
  void decide_again(Value* value, const PolicyDecision& decision);
  // The budget's verdict. The value will be copied back from the host, or replayed, if it is wanted again. Returns what
  // it was copied to, or null: the caller frees the device memory (OffloadedValue::leave()), without the lock.
  c10::intrusive_ptr<OffloadedValue> evict_for_room(Value* value);
  // The value in the form takes the place of the bytes that are held. The work that packed it is on `stream`.
  void hold_in_form(Value* value, FormPtr form, c10::IValue packed, int64_t packed_bytes, c10::StreamId stream);
  // The offered form of this place did not take the value.
  void refuse_form(Value* value, size_t place) { bytes_.note_refused(value, place); }
  // The bytes are there beside the packed form, which goes.
  void drop_packed(Value* value);
  // The value, which is offloaded and pinned, is to be replayed after all.
  void compute_instead(Value* value);
  // evict_for_room(), if it frees memory: see BudgetedTape::free_in_time().
  BudgetedTape::Freed evict_if_it_frees(Value* value, std::optional<c10::Device> device);
  // The ranks of a job have agreed on the value: all hold it, or none does. The budget decides on it no more.
  void hold_for_good(Value* value) { decide_again(value, PolicyDecision(CheckpointPolicy::MUST_SAVE)); }
  void drop_for_good(Value* value);
  // The original is about to be overwritten, and to drop a kept value is cheaper than to copy it.
  void drop_before_overwrite(Value* value);

 private:
  void keep(Value* value, const c10::Storage* original = nullptr);
  void drop_kept(Value* value);
  // evict_if_it_frees() of a value of which only the packed form is there.
  BudgetedTape::Freed drop_form_if_it_frees(Value* value, std::optional<c10::Device> device);
  // `original_goes`: as Pins::need_again().
  void drop_all_bytes(Value* value, bool original_goes = false);

  ValueBytes& bytes_;
  Pins& pins_;
  Decisions& decisions_;
  Offloading& offloading_;
  BudgetShare& budget_;
  ByteLedger& ledger_;
  std::shared_ptr<const OfferedForms> offered_;
  bool may_be_inexact_ = false;
  bool has_choices_ = false;
};

}  // namespace ac2::internal

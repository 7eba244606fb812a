#include "ac2/internal/tape/decisions.h"

#include <c10/util/ArrayRef.h>
#include <c10/util/SmallVector.h>

#include <utility>
#include <variant>

#include "absl/container/flat_hash_set.h"

namespace ac2::internal {

namespace {

bool must_not_recompute(const Node& node) {
  return node.decision == CheckpointPolicy::MUST_SAVE || node.decision == CheckpointPolicy::MUST_CPU_OFFLOAD;
}

// Whether a replay could take the value's bytes where forward left them.
bool is_alive(const Value& value) {
  if (const ManagedForm* managed = value.managed_form()) {
    return managed->tensor->is_alive();
  }
  const OpaqueForm* form = value.opaque_form();
  const bool exists = form != nullptr ? !form->origin.expired() : value.original_is_alive();
  return exists && !value.changed_outside();
}

using Values = c10::SmallVector<Value*, 4>;

// `root`, and the saved values on the way to it that nobody uses and whose bytes are gone: all that must be recomputed
// if it is. Empty if one of them cannot be. A worklist, since the way may be long.
Values values_to_recompute(Value* root) {
  Values values{root};
  absl::flat_hash_set<const Value*> gone;
  for (size_t i = 0; i < values.size(); ++i) {
    const Node* node = values[i]->producer();
    if (node == nullptr || !node->replayable || (i > 0 && must_not_recompute(*node))) {
      return {};
    }
    if (node->recomputed_outputs > 0) {
      continue;  // its inputs are in use
    }
    for (const NodeInput& input : node->inputs) {
      Value* in = input.value;
      if (in == nullptr || in->counts_on_replay() || in->is_used() || is_alive(*in)) {
        continue;
      }
      if (in->is_tagged() || in->budget().droppable) {
        return {};  // a tag, or the budget, decided that this very value is saved
      }
      if (gone.insert(in).second) {
        values.push_back(in);
      }
    }
  }
  return values;
}

}  // namespace

void Decisions::make_saved(Value* value) {
  if (!value->counts_on_replay()) {
    return;
  }
  value->parts.decided.change() = Decided::kSave;
  observers_.tell([&](Observer& observer) { observer.decision_changed(*value); });
  if (value->is_used()) {
    bytes_.hold(value);
  }
  // After hold(), because perhaps only the inputs keep the bytes alive.
  lifetimes_.count_on_replay_no_more(value);
}

bool Decisions::make_recomputed(Value* root) {
  if (root->counts_on_replay()) {
    return true;
  }
  const Values values = values_to_recompute(root);
  if (values.empty()) {
    return false;
  }
  lifetimes_.count_on_replay(values);
  bytes_.drop_held(root);
  for (Value* value : values) {
    value->parts.decided.change() = Decided::kRecompute;
    observers_.tell([&](Observer& observer) { observer.decision_changed(*value); });
  }
  return true;
}

// The decision stays as it was.
void Decisions::save_replayed(Value* value) {
  // Before these bytes count as held, because they are held in place of the inputs.
  lifetimes_.count_on_replay_no_more(value);
  bytes_.hold_replayed(value);
}

void Decisions::set_form_for(FormReason reason, Value* value, FormPtr form, const at::Tensor& tensor) {
  if (value->is_opaque() || value->is_managed() || (form == nullptr && value->packed_form() == nullptr)) {
    // An opaque tensor is held whole: there is no form that views of it could be rebuilt from. A managed one is
    // others'.
    return;
  }
  // In whatever form the value is held now, the tensor at hand has the bytes.
  bytes_.drop_held(value);
  bytes_.take_form_away(value);
  if (form != nullptr) {
    PackedForm packed(reason);
    packed.form = std::move(form);
    packed.meta = meta_of_storage(tensor, value->nbytes());
    bytes_.note_form(value, std::move(packed));
  }
  if (!value->counts_on_replay() && value->is_used()) {
    bytes_.hold(value);
  }
}

void Decisions::leave_unpacked(Value* value) {
  if (value->packed_form() != nullptr && !value->is_packed()) {
    bytes_.take_form_away(value);
  }
}

}  // namespace ac2::internal

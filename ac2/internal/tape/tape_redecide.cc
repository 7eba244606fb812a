// The part of Tape that decides anew, for a tag or a name, how a value is kept.
#include <c10/util/ArrayRef.h>
#include <c10/util/SmallVector.h>

#include <memory>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "ac2/internal/tape/tape.h"
#include "ac2/internal/tape/timeline.h"

namespace ac2::internal {

namespace {

bool must_not_recompute(const Node& node) {
  return node.decision == CheckpointPolicy::MUST_SAVE || node.decision == CheckpointPolicy::MUST_CPU_OFFLOAD;
}

}  // namespace

void Tape::make_saved(Value* value) {
  if (value->saved) {
    return;
  }
  value->saved = true;
  if (owned_timeline_) {
    owned_timeline_->set_saved(value, true);
  }
  if (value->uses > 0) {
    hold(value);
  }
  // After hold(): the inputs may be what keeps the bytes alive.
  if (--value->producer->recomputed_outputs == 0) {
    deactivate(value->producer);
  }
}

bool Tape::make_recomputed(Value* root) {
  if (!root->saved) {
    return true;
  }
  // `root`, and the saved values on the way to it that nobody has used, and whose bytes are gone. A worklist.
  c10::SmallVector<Value*, 4> values{root};
  absl::flat_hash_set<const Value*> gone;
  for (size_t i = 0; i < values.size(); ++i) {
    const Node* node = values[i]->producer;
    if (node == nullptr || !node->replayable || (i > 0 && must_not_recompute(*node))) {
      return false;
    }
    if (node->recomputed_outputs > 0) {
      continue;  // its inputs are in use
    }
    for (const NodeInput& input : node->inputs) {
      Value* in = input.value;
      if (in == nullptr || !in->saved || in->uses > 0) {
        continue;
      }
      const bool alive = in->is_opaque() ? !in->other->opaque_origin.expired() : !in->origin.expired();
      if (alive && !in->changed_outside()) {
        continue;
      }
      if (in->tagged || in->budgeted) {
        return false;  // that it is saved was said of this very value
      }
      if (gone.insert(in).second) {
        values.push_back(in);
      }
    }
  }
  // First, so that nothing tries to hold those that are gone.
  for (Value* value : c10::ArrayRef<Value*>(values).slice(1)) {
    value->saved = false;
  }
  for (Value* value : values) {
    if (++value->producer->recomputed_outputs == 1) {
      activate(value->producer);
    }
  }
  root->saved = false;
  drop_held(root);
  if (owned_timeline_) {
    for (const Value* value : values) {
      owned_timeline_->set_saved(value, false);
    }
  }
  return true;
}

void Tape::set_hooks(Value* value, std::shared_ptr<const SaveWithHooks> hooks, const at::Tensor& tensor) {
  if (value->is_opaque() || (hooks == nullptr && !value->has_hooks())) {
    return;  // an opaque tensor is held whole: there is no form that views of it could be rebuilt from
  }
  // In whatever form it is kept now, the tensor at hand has the bytes.
  drop_held(value);
  value->other.reset();
  if (hooks != nullptr) {
    const TensorMeta meta = TensorMeta(*tensor.unsafeGetTensorImpl()).as_stored();
    value->other = std::make_unique<OtherForm>();
    value->other->hooks = std::move(hooks);
    value->other->packed_meta = meta.covers(value->nbytes) ? meta : meta.flattened(value->nbytes);
  }
  if (value->saved && value->uses > 0) {
    hold(value);
  }
}

}  // namespace ac2::internal

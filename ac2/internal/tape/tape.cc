// The part of Tape that says how long values and nodes live, and in what form a saved value is kept.
#include "ac2/internal/tape/tape.h"

#include <c10/util/Exception.h>

#include <atomic>
#include <cstdlib>
#include <utility>

#include "ac2/internal/tape/backward_state.h"
#include "ac2/internal/tape/budget.h"
#include "ac2/internal/tape/live_nodes.h"
#include "ac2/internal/tape/offloader.h"
#include "ac2/internal/tape/saved_tensor_hook.h"
#include "ac2/internal/tape/step_log.h"
#include "ac2/internal/tape/timeline.h"
#include "ac2/internal/tape/verifier.h"

namespace ac2::internal {

Tape::Trash::~Trash() {
  while (values != nullptr) {
    tape.values_.destroy(std::exchange(values, values->next_dead));
  }
  while (nodes != nullptr) {
    tape.nodes_.destroy(std::exchange(nodes, nodes->next_dead));
  }
}

Tape::Tape() : hook_pool_(std::make_unique<Pool<SavedTensorHook>>()), backward_(std::make_unique<BackwardState>()) {}

Tape::~Tape() {
  // No hook is left, for each holds the tape: what remains is what close() would have let go of.
  close();
}

void Tape::unref(Value* value) {
  if (--value->refs > 0) {
    return;
  }
  value->next_dead = std::exchange(dying_, value);
  if (!reaping_) {
    reap();
  }
}

// A worklist: chains of any length are taken apart without recursion.
void Tape::reap() {
  reaping_ = true;
  while (dying_ != nullptr) {
    Value* value = std::exchange(dying_, dying_->next_dead);
    if (value->producer != nullptr) {
      detach_producer(value);
    }
    drop_held(value);
    drop_real(value);
    if (value->budget_id != kNoId) {
      owned_budget_->forget(*value);
    }
    if (owned_verifier_) {
      owned_verifier_->forget(value);
    }
    if (owned_step_log_) {
      owned_step_log_->forget(*value);
    }
    if (owned_timeline_) {
      owned_timeline_->forget(value);
    }
    value->next_dead = std::exchange(trash().values, value);
  }
  reaping_ = false;
}

void Tape::attach(Node* node, Value* value, NodeOutput output, bool saved) {
  value->producer = node;
  value->slot = static_cast<uint32_t>(node->outputs.size());
  value->saved = saved;
  output.value = value;
  node->outputs.push_back(output);
  ++node->refs;
  if (!saved && ++node->recomputed_outputs == 1) {
    activate(node);
  }
}

void Tape::node_recorded() {
  ++live_nodes_;
  live_nodes().fetch_add(1, std::memory_order_relaxed);
  let_go_of_dead();
}

void Tape::discard(Node* node) {
  for (const NodeInput& input : node->inputs) {
    if (input.value != nullptr) {
      unref(input.value);
    }
  }
  node->next_dead = std::exchange(trash().nodes, node);
}

void Tape::detach_producer(Value* value) {
  Node* node = std::exchange(value->producer, nullptr);
  node->outputs[value->slot].value = nullptr;
  if (!value->saved && --node->recomputed_outputs == 0) {
    deactivate(node);
  }
  if (--node->refs > 0) {
    return;
  }
  for (const NodeInput& input : node->inputs) {
    if (input.value != nullptr) {
      unref(input.value);
    }
  }
  --live_nodes_;
  live_nodes().fetch_sub(1, std::memory_order_relaxed);
  node->next_dead = std::exchange(trash().nodes, node);
}

void Tape::activate(Node* node) {
  for (const NodeInput& input : node->inputs) {
    if (input.value != nullptr) {
      use(input.value);
    }
  }
}

void Tape::deactivate(Node* node) {
  for (const NodeInput& input : node->inputs) {
    if (input.value != nullptr) {
      unuse(input.value);
    }
  }
}

void Tape::use(Value* value) {
  if (value->uses++ == 0 && value->saved) {
    hold(value);
  }
}

void Tape::unuse(Value* value) {
  if (--value->uses == 0) {
    drop_held(value);
  }
}

void Tape::hold(Value* value) {
  if (value->held || value->is_packed()) {
    return;
  }
  if (value->is_opaque()) {
    auto impl = value->other->opaque_origin.lock();
    TORCH_INTERNAL_ASSERT(impl, "a tensor without storage died before it was saved");
    value->other->opaque = at::Tensor(std::move(impl)).variable_data();
    return;
  }
  value->held = c10::Storage(value->origin.lock());
  TORCH_INTERNAL_ASSERT(value->held, "a storage died before it was saved");
  count_saved(value, static_cast<int64_t>(value->nbytes));
  if (owned_budget_) {
    count_held(value);
    update_place(value);
  }
  if (value->has_hooks() && !value->other->is_packing) {
    pending_packs_.push_back(value);
    ref(value);
  }
}

void Tape::drop_held(Value* value) {
  if (owned_step_log_) {
    owned_step_log_->letting_go(*value);
  }
  if (value->held) {
    count_saved(value, -static_cast<int64_t>(value->nbytes));
    if (owned_budget_) {
      uncount_held(value);
    }
    trash().storages.push_back(std::move(value->held));
    value->held = c10::Storage();
    value->private_bytes = false;
  }
  if (value->is_opaque() && value->other->opaque.defined()) {
    trash().tensors.push_back(std::move(value->other->opaque));
    value->other->opaque = at::Tensor();
  }
  if (value->is_packed()) {
    count_packed(value, -1);
    uncount(value->held_counted, value->other->packed_bytes);
    trash().packed.push_back(std::move(value->other->packed));
    value->other->packed = c10::IValue();
    value->other->is_packed = false;
  }
  if (owned_budget_) {
    update_place(value);
  }
}

void Tape::hold_copy(Value* value, c10::Storage copy) {
  drop_held(value);
  value->held = std::move(copy);
  value->private_bytes = true;
  count_saved(value, static_cast<int64_t>(value->nbytes));
  count_copied(value);
  if (owned_budget_) {
    count_held(value);
    update_place(value);
  }
}

void Tape::copy_real(Value* value, c10::Storage copy) {
  if (value->real && value->real_is_original) {
    count_copied(value);
    set_real(value, std::move(copy), at::Tensor());
  }
}

void Tape::forget_origin(Value* value) {
  if (owned_step_log_) {
    owned_step_log_->overwritten(*value);
  }
  if (value->keep && value->held && !value->private_bytes) {
    evict(value);  // cheaper than a copy, since it can be computed again
  }
  value->origin.reset();
  if (owned_budget_) {
    update_place(value);
  }
}

void Tape::drop_unused(Value* value) {
  if (value->uses == 0) {
    drop_held(value);
  }
}

void Tape::set_packed(Value* value, c10::IValue packed, int64_t packed_bytes) {
  // It may have been overwritten, tagged or let go of meanwhile.
  if (!value->held) {
    trash().packed.push_back(std::move(packed));
    return;
  }
  drop_held(value);
  value->other->packed = std::move(packed);
  value->other->packed_bytes = packed_bytes;
  value->other->is_packed = true;
  count_packed(value, 1);
  if (owned_budget_) {
    count(value->held_counted, packed_bytes);
    update_place(value);
  }
}

c10::SmallVector<Value*, 2> Tape::take_pending_packs() {
  return std::exchange(pending_packs_, {});
}

void Tape::count_saved(const Value* value, int64_t bytes) {
  saved_bytes_ += bytes;
  if (owned_timeline_) {
    owned_timeline_->changed(value, bytes < 0 ? Timeline::Change::RELEASE : Timeline::Change::HOLD, std::abs(bytes),
                             saved_bytes_, recomputed_bytes_);
  }
}

void Tape::count_packed(const Value* value, int64_t direction) {
  if (value->other->is_offload) {
    offloaded_bytes_ += direction * static_cast<int64_t>(value->nbytes);
  } else {
    count_saved(value, direction * value->other->packed_bytes);
  }
}

void Tape::count_recomputed(const Value* value, int64_t bytes) {
  recomputed_bytes_ += bytes;
  if (owned_timeline_) {
    owned_timeline_->changed(value, bytes < 0 ? Timeline::Change::DROP : Timeline::Change::REPLAY, std::abs(bytes),
                             saved_bytes_, recomputed_bytes_);
  }
}

void Tape::count_copied(const Value* value) {
  const auto bytes = static_cast<int64_t>(value->nbytes);
  copied_bytes += bytes;
  if (owned_timeline_) {
    owned_timeline_->changed(value, Timeline::Change::COPY, bytes, saved_bytes_, recomputed_bytes_);
  }
}

void Tape::start_timeline() {
  const Lock lock(*this);
  if (!owned_timeline_) {
    owned_timeline_ = std::make_unique<Timeline>();
    log_what_is_held();
    timeline_.store(owned_timeline_.get(), std::memory_order_release);
  }
}

void Tape::set_step_log(std::shared_ptr<StepLog> log) {
  const Lock lock(*this);
  owned_step_log_ = std::move(log);
  step_log_.store(owned_step_log_.get(), std::memory_order_release);
}

void Tape::start_verifying() {
  const Lock lock(*this);
  if (!owned_verifier_) {
    owned_verifier_ = std::make_unique<Verifier>();
    verifier_.store(owned_verifier_.get(), std::memory_order_release);
  }
}

}  // namespace ac2::internal

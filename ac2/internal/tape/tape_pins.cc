// The part of Tape that says what the backwards under way need: pins, and the bytes that pins keep.
//
// A value's first pin makes it needed: its bytes are taken where they are, or its producer is marked and the producer's
// inputs are pinned in turn. The last unpin undoes that. Every edge is walked once, so n ops cost O(n); and nothing
// here recurses, so n may be a million.
#include <c10/util/Exception.h>
#include <c10/util/SmallVector.h>

#include <utility>

#include "ac2/internal/libtorch/stream_order.h"
#include "ac2/internal/tape/tape.h"

namespace ac2::internal {

namespace {

struct Change {
  uint32_t found;
  uint32_t expected;
};

// Of the first counter that says so.
Change change_outside(const Value& value) {
  if (value.other_versions) {
    for (const NotedVersion& other : *value.other_versions) {
      if (other.changed()) {
        return {other.counter.current_version(), other.version};
      }
    }
  }
  return {value.version.current_version(), value.noted_version};
}

void check_unchanged(const Value& value) {
  if (value.private_bytes || !value.changed_outside()) {
    return;
  }
  const std::string what = value.producer != nullptr ? "the result of " + value.producer->facts->name + " (op " +
                                                           std::to_string(value.producer->index) + " of its region)"
                                                     : std::string("a tensor that the region took as input");
  const Change change = change_outside(value);
  TORCH_CHECK(false,
              "one of the variables needed for gradient computation has been modified by an inplace operation: ", what,
              " of ", value.nbytes, " bytes is at version ", change.found, "; expected version ", change.expected,
              " instead. It was saved by reference in an ac2 region and written to where the region could not see it "
              "(after it, in DisableCheckpointing or in another thread). Write to a clone() of it, or after backward.");
}

}  // namespace

void Tape::check_offloaded(const Value& value) const {
  // What an op of the region has written over is in host memory as it was; see Overwrites.
  if (value.origin._unsafe_get_target() != nullptr) {
    check_unchanged(value);
  }
}

const c10::Storage* Tape::available(Value* value) {
  if (value->held) {
    check_unchanged(*value);
    return &value->held;
  }
  if (value->real) {
    if (value->real_is_original) {
      check_unchanged(*value);
    }
    return &value->real;
  }
  return nullptr;
}

void Tape::pin(Value* root) {
  c10::SmallVector<Value*, 16> work{root};
  while (!work.empty()) {
    Value* value = work.pop_back_val();
    if (value->keep && value->held && !value->private_bytes && value->changed_outside()) {
      drop_held(value);
    }
    if (value->pins++ > 0 || value->held || value->real || value->is_opaque() ||
        (value->is_packed() && !value->is_offloaded())) {
      continue;
    }
    // Inference tensors have no version counter: nobody can say that one is still what the op returned.
    if (value->noted && value->version.enabled() && !value->some_unwatched) {
      auto original = value->origin.lock();
      if (original && !value->changed_outside() && original->nbytes() == value->nbytes) {
        value->real = c10::Storage(std::move(original));
        value->real_is_original = true;
        continue;
      }
    }
    if (value->is_offloaded()) {
      continue;
    }
    Node* node = value->producer;
    TORCH_INTERNAL_ASSERT(node != nullptr, "a value is neither kept nor computable");
    value->waits = true;
    if (owned_budget_) {
      update_place(value);
    }
    if (node->needed++ == 0) {
      for (const NodeInput& input : node->inputs) {
        if (input.value != nullptr) {
          work.push_back(input.value);
        }
      }
    }
  }
}

void Tape::unpin(Value* root) {
  c10::SmallVector<Value*, 16> work{root};
  while (!work.empty()) {
    Value* value = work.pop_back_val();
    if (--value->pins > 0) {
      continue;
    }
    drop_real(value);
    if (!std::exchange(value->waits, false)) {
      continue;
    }
    Node* node = value->producer;
    if (--node->needed == 0) {
      for (const NodeInput& input : node->inputs) {
        if (input.value != nullptr) {
          work.push_back(input.value);
        }
      }
    }
  }
}

void Tape::set_real(Value* value, c10::Storage storage, at::Tensor replayed) {
  drop_real(value);
  value->real = std::move(storage);
  value->stream = current_stream(value->real);
  value->replayed = std::move(replayed);
  value->real_is_original = false;
  count_recomputed(value, static_cast<int64_t>(value->nbytes));
  if (owned_budget_) {
    count_real(value);
    update_place(value);
  }
}

void Tape::drop_real(Value* value) {
  if (!value->real) {
    return;
  }
  if (!value->real_is_original) {
    count_recomputed(value, -static_cast<int64_t>(value->nbytes));
  }
  value->real_is_original = false;
  trash().storages.push_back(std::move(value->real));
  value->real = c10::Storage();
  if (value->replayed.defined()) {
    trash().tensors.push_back(std::move(value->replayed));
    value->replayed = at::Tensor();
  }
  if (owned_budget_) {
    uncount(value->real_counted, static_cast<int64_t>(value->nbytes));
    update_place(value);
  }
}

c10::Storage Tape::take_real(Value* value) {
  TORCH_INTERNAL_ASSERT(value->real && !value->real_is_original);
  count_recomputed(value, -static_cast<int64_t>(value->nbytes));
  if (value->replayed.defined()) {
    trash().tensors.push_back(std::move(value->replayed));
    value->replayed = at::Tensor();
  }
  c10::Storage bytes = std::exchange(value->real, c10::Storage());
  if (owned_budget_) {
    uncount(value->real_counted, static_cast<int64_t>(value->nbytes));
    update_place(value);
  }
  return bytes;
}

// A timeline is not told that it is saved now: it says what was decided.
void Tape::keep_real(Value* value) {
  value->held = take_real(value);
  value->private_bytes = true;
  value->saved = true;
  // Before these bytes count: they are there in place of the inputs.
  if (--value->producer->recomputed_outputs == 0) {
    deactivate(value->producer);
  }
  count_saved(value, static_cast<int64_t>(value->nbytes));
}

void Tape::need_again(Value* value) {
  if (value->pins == 0 || value->waits || value->held || value->real) {
    return;
  }
  // As if the pins had been set just now.
  const int32_t pins = std::exchange(value->pins, 0);
  pin(value);
  value->pins = pins;
}

void Tape::realized(Node* node) {
  for (const NodeOutput& output : node->outputs) {
    if (output.value != nullptr) {
      output.value->waits = false;
    }
  }
  node->needed = 0;
  for (const NodeInput& input : node->inputs) {
    if (input.value != nullptr) {
      unpin(input.value);
    }
  }
}

}  // namespace ac2::internal

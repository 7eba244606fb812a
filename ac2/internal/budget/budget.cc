#include "ac2/internal/budget/budget.h"

#include <c10/macros/Macros.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <utility>

namespace ac2::internal {

namespace {

// A hash of the operator and of the sizes of the results. Facts are never freed, so that their address stands for the
// operator.
uint64_t signature_of(const Node& node) {
  uint64_t signature = reinterpret_cast<uintptr_t>(node.facts);
  for (const NodeOutput& output : node.outputs) {
    const uint64_t bytes = output.value != nullptr ? output.value->nbytes() : 0;
    signature = (signature ^ bytes) * 0x9e3779b97f4a7c15ULL;
    signature ^= signature >> 29;
  }
  return signature;
}

uint64_t next_number() {
  static std::atomic<uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

// Of those that are offered, the ones that have not refused it.
PackingForms::Set forms_that_may_hold(const Value& value) {
  PackingForms::Set forms = 0;
  if (value.may_be_packed_for_room()) {
    const PackedForm& packed = *value.packed_form();
    for (size_t i = 0; i < packed.offered->numbers.size(); ++i) {
      forms |= (packed.refused >> i & 1U) == 0 ? PackingForms::bit(packed.offered->numbers[i]) : 0;
    }
  }
  return forms;
}

}  // namespace

Budget::Budget(Limit limit, CostSource costs)
    : limit_(limit.bytes),
      evictor_({.budget = limit.bytes, .foresight = &memory_, .copies = &copies_, .packing = &packing_forms_}),
      memory_(evictor_, StepStore::process(), StepMemory::Wants::kUntilTaken),
      copies_(evictor_, memory_),
      packing_forms_(evictor_),
      limits_{limit},
      costs_(costs),
      number_(next_number()) {}

Budget::Limit Budget::limit() const {
  const MutexLock lock(mutex_);
  return *limits_.begin();
}

int64_t Budget::times_over() const {
  const MutexLock lock(mutex_);
  return times_over_;
}

int64_t Budget::most_bytes_over() const {
  const MutexLock lock(mutex_);
  return most_bytes_over_;
}

int64_t Budget::held_bytes() {
  start_tracking();  // the untracked bytes are not known to the byte
  const MutexLock lock(mutex_);
  return held();
}

void Budget::set_limit() {
  evictor_.set_budget(limits_.begin()->bytes);
  limit_.store(limits_.begin()->bytes, std::memory_order_relaxed);
}

std::shared_ptr<void> Budget::limit_to(Limit limit) {
  const MutexLock lock(mutex_);
  limits_.insert(limit);
  set_limit();
  return {nullptr, [budget = shared_from_this(), limit](void*) {
            const MutexLock unlimit(budget->mutex_);
            budget->limits_.erase(budget->limits_.find(limit));
            budget->set_limit();
          }};
}

ValueId Budget::id_of(const std::weak_ptr<BudgetedTape>& tape, Value& value) {
  if (value.budget().id == kNoId) {
    value.budget_.id = evictor_.add_outside(static_cast<int64_t>(value.nbytes()), Place::kElsewhere);
    enter(tape, value);
  }
  return value.budget().id;
}

bool Budget::add_tape(std::weak_ptr<BudgetedTape> tape) {
  std::vector<std::shared_ptr<BudgetedTape>> left_over;  // goes after the lock
  const MutexLock lock(mutex_);
  left_over.swap(left_over_);
  if (tapes_.size() >= most_tapes_) {
    std::erase_if(tapes_, [](const std::weak_ptr<BudgetedTape>& other) { return other.expired(); });
    most_tapes_ = std::max(kFewTapes, 2 * tapes_.size());
  }
  tapes_.push_back(std::move(tape));
  return tracks_new_tapes_;
}

void Budget::start_tracking() {
  if (tracking_.load(std::memory_order_acquire)) {
    return;
  }
  const MutexLock lock(start_mutex_);
  track([](BudgetedTape& tape) {
    tape.start_tracking();
    return true;
  });
}

bool Budget::track(c10::function_ref<bool(BudgetedTape&)> tell) {
  if (tracking_.load(std::memory_order_acquire)) {
    return true;
  }
  {
    const MutexLock lock(mutex_);
    tracks_new_tapes_ = true;
  }
  bool all = true;
  for_each_tape([&](BudgetedTape& tape) { all = all && tell(tape); });
  if (!all) {
    return false;
  }
  const MutexLock lock(mutex_);
  // Until now the evictor did not know what is held, and what hooks want.
  evictor_.note_all_needs(fixed_bytes());
  // Set last: other threads would else make room by an evictor that knows half of what is held. Pairs with the acquire
  // of those who ask without the lock whether it tracks.
  tracking_.store(true, std::memory_order_release);
  return true;
}

void Budget::add_call(const std::weak_ptr<BudgetedTape>& tape, Node& node) {
  const MutexLock lock(mutex_);
  c10::SmallVector<ValueId, 8> inputs;
  for (const NodeInput& input : node.inputs) {
    if (input.value != nullptr) {
      inputs.push_back(id_of(tape, *input.value));
    }
  }
  evictor_.ran(node.cost);
  node.budget_node = evictor_.add_node(node.cost, absl::MakeConstSpan(inputs.data(), inputs.size()));
  memory_.ran(signature_of(node), node.cost, absl::MakeConstSpan(inputs.data(), inputs.size()));
  for (const NodeOutput& output : node.outputs) {
    if (output.value == nullptr || !output.value->budget().droppable) {
      continue;
    }
    Value& value = *output.value;
    value.budget_.id =
        evictor_.add_result(node.budget_node, static_cast<int64_t>(value.nbytes()), value.budget().retention);
    value.budget_.tracked = true;
    memory_.made(node.budget_node, value.budget().id);
    enter(tape, value);
    place(value, Place::kElsewhere);
  }
  for (const ValueId input : inputs) {
    evictor_.used(input);
  }
  evictor_.note_needs(node.budget_node, fixed_bytes());
}

void Budget::forget(Value& value) {
  const MutexLock lock(mutex_);
  copies_.forget(value.budget().id);
  packing_forms_.forget(value.budget().id);
  evictor_.forget(value.budget().id);
  memory_.forget(value.budget().id);
  entries_[value.budget().id] = {};
  value.budget_.id = kNoId;
  value.budget_.tracked = false;
}

void Budget::make_outside(Value& value) {
  const MutexLock lock(mutex_);
  for (int32_t i = 0; i < value.hooks(); ++i) {
    evictor_.remove_hook(value.budget().id);
  }
  place(value, Place::kElsewhere);
  copies_.forget(value.budget().id);
  packing_forms_.forget(value.budget().id);
  evictor_.make_outside(value.budget().id);
  value.budget_.tracked = false;
}

void Budget::enter(const std::weak_ptr<BudgetedTape>& tape, Value& value) {
  entries_.resize(std::max<size_t>(entries_.size(), value.budget().id + 1));
  entries_[value.budget().id] = {.tape = tape, .value = &value, .serial = ++serial_};
}

void Budget::place(const Value& value, Place place, int64_t packed_bytes) {
  evictor_.set_place(value.budget().id, place, packed_bytes);
  Entry& entry = entries_[value.budget().id];
  if (place == Place::kElsewhere && !entry.elsewhere && value.budget().tracked) {
    entry.elsewhere = true;
    elsewhere_.push_back({value.budget().id, entry.serial, value.weak_original()});
  }
  if (C10_UNLIKELY(value.budget().copyable)) {
    if (place == Place::kHeld) {
      copies_.may_copy(value.budget().id);
    } else if (place != Place::kOnHost) {
      copies_.forget(value.budget().id);
    }
  }
  if (C10_UNLIKELY(value.has_form())) {
    packing_forms_.may_pack(value.budget().id, forms_that_may_hold(value));
  }
}

void Budget::set_place(const Value& value, Place place, int64_t packed_bytes) {
  const MutexLock lock(mutex_);
  this->place(value, place, packed_bytes);
}

ValueId Budget::next_victim(bool spare_last) {
  look_elsewhere();
  memory_.about_to_choose();
  return evictor_.next_victim(spare_last);
}

void Budget::look_elsewhere() {
  std::erase_if(elsewhere_, [this](const Elsewhere& there) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    Entry& entry = entries_[there.id];
    if (entry.serial != there.serial) {
      return true;
    }
    const bool still = evictor_.place(there.id) == Place::kElsewhere;
    if (still && (!there.origin.expired() || evictor_.retention(there.id) == Retention::kMustSave)) {
      return false;
    }
    if (still) {
      evictor_.set_place(there.id, Place::kNowhere);
    }
    entry.elsewhere = false;
    return true;
  });
}

void Budget::set_retention(const Value& value, Retention retention) {
  const MutexLock lock(mutex_);
  if (retention == Retention::kMustSave) {
    copies_.forget(value.budget().id);
  }
  evictor_.set_retention(value.budget().id, retention);
}

void Budget::add_hook(const Value& value) {
  const MutexLock lock(mutex_);
  evictor_.add_hook(value.budget().id);
}

void Budget::remove_hook(const Value& value) {
  const MutexLock lock(mutex_);
  evictor_.remove_hook(value.budget().id);
}

void Budget::used(const Value& value) {
  if (value.budget().id != kNoId) {
    const MutexLock lock(mutex_);
    evictor_.used(value.budget().id);
  }
}

void Budget::took(const Value& value) {
  const MutexLock lock(mutex_);
  memory_.took(value.budget().id);
  if (memory_.knows_uses()) {
    evictor_.foresight_changed(value.budget().id);
  }
}

void Budget::pin(const Value& value) {
  const MutexLock lock(mutex_);
  evictor_.pin(value.budget().id);
}

void Budget::unpin(const Value& value) {
  const MutexLock lock(mutex_);
  evictor_.unpin(value.budget().id);
}

void Budget::replayed(const Node& node) {
  if (node.budget_node != kNoId) {
    const MutexLock lock(mutex_);
    ++replays_of_step_;
    evictor_.ran(evictor_.graph().node(node.budget_node).cost);
    memory_.replayed(node.budget_node);
  }
}

void Budget::add_fixed(int64_t bytes) {
  const MutexLock lock(mutex_);
  fixed_bytes_ += bytes;
}

void Budget::add_outside(const c10::Storage& storage) {
  const MutexLock lock(mutex_);
  outside_.add(storage);
}

void Budget::remove_outside(const c10::Storage& storage) {
  const MutexLock lock(mutex_);
  outside_.remove(storage);
}

}  // namespace ac2::internal

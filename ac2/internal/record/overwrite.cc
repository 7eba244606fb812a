#include "ac2/internal/record/overwrite.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "ac2/internal/libtorch/storage_copy.h"
#include "ac2/internal/record/part_writes.h"
#include "ac2/internal/record/unseen_writes.h"
#include "ac2/internal/tape/offloader.h"

namespace ac2::internal {

namespace {

bool is_written(const OpFacts& facts, size_t argument) {
  return std::find(facts.written.begin(), facts.written.end(), argument) != facts.written.end();
}

template <class Fn>
void for_each_tensor_in(const c10::IValue& value, Fn&& fn) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) {
      fn(value.toTensor(), -1);
    }
  } else if (value.isList()) {
    int32_t index = 0;
    for (const c10::IValue& element : value.toListRef()) {
      if (element.isTensor() && element.toTensor().defined()) {
        fn(element.toTensor(), index);
      }
      ++index;
    }
  }
}

}  // namespace

void Overwrites::add(const at::Tensor& tensor, uint16_t argument, int32_t list_index) {
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  if (!has_plain_storage(impl)) {
    opaque_ = true;
    return;
  }
  c10::StorageImpl* storage = impl.storage().unsafeGetStorageImpl();
  int target = target_of(storage);
  if (target < 0) {
    target = static_cast<int>(targets_.size());
    Target& added = targets_.emplace_back();
    added.storage = storage;
    added.tensor = tensor;
    added.nbytes = storage->nbytes();
  }
  Argument& added = arguments_.emplace_back();
  added.argument = argument;
  added.list_index = list_index;
  added.target = static_cast<int16_t>(target);
  added.meta = tape_.intern(tensor);
}

int Overwrites::target_of(const c10::StorageImpl* storage) const {
  for (size_t i = 0; i < targets_.size(); ++i) {
    if (targets_[i].storage == storage) {
      return static_cast<int>(i);
    }
  }
  return -1;
}

void Overwrites::collect(const OpFacts& facts, c10::ArrayRef<c10::IValue> arguments) {
  for (const uint16_t i : facts.written) {
    for_each_tensor_in(arguments[i], [&](const at::Tensor& tensor, int32_t index) { add(tensor, i, index); });
  }
  for (const Argument& argument : arguments_) {
    if (std::find(facts.written_unseen.begin(), facts.written_unseen.end(), argument.argument) !=
        facts.written_unseen.end()) {
      targets_[argument.target].of_no_matter = true;
      targets_[argument.target].accumulates = true;
    }
  }
  if (!facts.overwrites) {
    return;
  }
  absl::flat_hash_set<const c10::StorageImpl*> read;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!is_written(facts, i)) {
      for_each_tensor_in(arguments[i], [&](const at::Tensor& tensor, int32_t) {
        if (has_plain_storage(*tensor.unsafeGetTensorImpl())) {
          read.insert(tensor.unsafeGetTensorImpl()->storage().unsafeGetStorageImpl());
        }
      });
    }
  }
  for (const Argument& argument : arguments_) {
    Target& target = targets_[argument.target];
    target.of_no_matter |= argument.meta->covers(target.nbytes) && !read.contains(target.storage);
  }
}

const TensorMeta* Overwrites::only_argument_of(const Target& target) const {
  const TensorMeta* only = nullptr;
  for (const Argument& argument : arguments_) {
    if (&targets_[argument.target] == &target && std::exchange(only, argument.meta) != nullptr) {
      return nullptr;
    }
  }
  return only;
}

bool Overwrites::hand_on(const Target& target) {
  const TensorMeta* written = only_argument_of(target);
  return written != nullptr && hand_on_hooks(tape_, target.old, target.tensor, *written);
}

// By way of another constructor, so that the destructor lets go of what was taken if this one throws: a copy may find
// no memory.
Overwrites::Overwrites(Tape& tape, const OpFacts& facts, c10::ArrayRef<c10::IValue> arguments, Fate fate)
    : Overwrites(tape) {
  if (facts.written_only_if >= 0 && !arguments[facts.written_only_if].toBool()) {
    return;
  }
  struct Copy {
    Value* value;
    c10::Storage source;
    bool of_real;  // an original that a backward under way has pinned
  };
  c10::SmallVector<Copy, 1> copies;
  c10::SmallVector<c10::intrusive_ptr<OffloadedValue>, 1> on_the_way;
  {
    const Tape::Lock lock(tape);
    collect(facts, arguments);
    for (Target& target : targets_) {
      const bool must_know = fate.recompute && !target.of_no_matter;
      Value* old = must_know ? tape.current(target.tensor) : tape.find_current(target.tensor);
      if (old == nullptr) {
        continue;
      }
      if (target.accumulates && follows_unseen_writes(*old)) {
        target.handed_on_ = true;
        continue;
      }
      tape.ref(old);
      target.old = old;
      const bool stays = fate.in_place && !fate.by_name && !(fate.offload && tape.may_leave(target.tensor));
      if (stays && !target.of_no_matter && !must_know && hand_on(target)) {
        target.handed_on_ = true;
        continue;
      }
      const bool packed = old->is_packed();
      if (old->is_offloaded()) {
        on_the_way.push_back(offloaded_of(*old));
        if (old->real_is_original) {
          tape.drop_real(old);  // host memory has the bytes
        }
      }
      target.recoverable_ = !old->saved || old->uses > 0 || packed || must_know;
      target.by_name_ = fate.by_name && old->producer != nullptr && old->producer->replayable;
      if (old->real && old->real_is_original && old->pins > 0) {
        copies.push_back({old, old->real, true});
      }
      const int32_t uses = target.accumulates ? old->uses - old->hooks : old->uses;
      if (old->saved && !packed && !old->private_bytes && (uses > 0 || must_know)) {
        copies.push_back({old, target.tensor.storage(), false});
      }
      // Whoever uses it now may let go of it while the op runs, before the op's node uses it.
      if (old->uses > 0) {
        tape.use(old);
        target.used_ = true;
      }
    }
  }
  for (const c10::intrusive_ptr<OffloadedValue>& offloaded : on_the_way) {
    offloaded->before_write();
  }
  for (Copy& copy : copies) {
    c10::Storage bytes = copy_storage(copy.source, copy.value->nbytes);
    const Tape::Lock lock(tape);
    if (copy.of_real) {
      tape.copy_real(copy.value, std::move(bytes));
    } else {
      tape.hold_copy(copy.value, std::move(bytes));
    }
  }
  const Tape::Lock lock(tape);
  for (Target& target : targets_) {
    if (!target.handed_on()) {
      tape.forget_current(target.storage);
    }
    if (target.old != nullptr) {
      if (target.accumulates) {
        follow_unseen_write(tape, target.old, target.tensor);
      }
      tape.forget_origin(target.old);
    }
  }
}

Overwrites::~Overwrites() {
  const bool any = std::any_of(targets_.begin(), targets_.end(), [](const Target& t) { return t.old != nullptr; });
  if (!any) {
    return;
  }
  const Tape::Lock lock(tape_);
  for (const Target& target : targets_) {
    if (target.old != nullptr) {
      target.used_ ? tape_.unuse(target.old) : tape_.drop_unused(target.old);
      tape_.unref(target.old);
    }
  }
}

}  // namespace ac2::internal

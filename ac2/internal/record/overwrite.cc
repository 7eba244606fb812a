#include "ac2/internal/record/overwrite.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "ac2/internal/libtorch/for_each_tensor.h"
#include "ac2/internal/libtorch/foreign_memory.h"
#include "ac2/internal/libtorch/managed_tensors.h"
#include "ac2/internal/libtorch/storage_copy.h"
#include "ac2/internal/libtorch/torch_compat.h"
#include "ac2/internal/record/aliases.h"
#include "ac2/internal/record/part_writes.h"
#include "ac2/internal/record/unseen_writes.h"
#include "ac2/internal/record/whole_writes.h"

namespace ac2::internal {

namespace {

bool is_written(const OpFacts& facts, size_t argument) {
  return std::find(facts.written.begin(), facts.written.end(), argument) != facts.written.end();
}

}  // namespace

void Overwrites::add(LockedTape& tape, const OpFacts& facts, const at::Tensor& tensor, uint16_t argument,
                     int32_t list_index) {
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  if (!has_plain_storage(impl)) {
    opaque_ = true;
    add_whole(tape, tensor);
    return;
  }
  c10::StorageImpl* storage = impl.storage().unsafeGetStorageImpl();
  if (C10_UNLIKELY(is_managed(*storage))) {
    opaque_ = true;  // a replay would write to the parameter itself
    return;
  }
  int target = target_of(storage);
  if (target < 0 ||
      !same_counter(impl.version_counter(), targets_[target].tensor.unsafeGetTensorImpl()->version_counter())) {
    writes_.emplace_back(tensor, storage, facts.name.c_str());
  }
  if (target < 0) {
    target = static_cast<int>(targets_.size());
    Target& added = targets_.emplace_back();
    added.storage = storage;
    added.tensor = tensor;
    added.nbytes = storage->nbytes();
    added.foreign = may_change_unseen(tensor);
    num_targets_ = targets_.size();
  }
  Argument& added = arguments_.emplace_back();
  added.argument = argument;
  added.list_index = list_index;
  added.target = static_cast<int16_t>(target);
  added.meta = tape.intern(tensor);
}

// A copy of a subclass of Python's would call Python; its parts have storages, and values, of their own.
C10_NOINLINE void Overwrites::add_whole(LockedTape& tape, const at::Tensor& tensor) {
  Value* value = tape.storages().find(tensor);
  if (value != nullptr && value->is_used() && value->opaque_form()->held.defined() &&
      !tensor.key_set().has(c10::DispatchKey::Python)) {
    tape.lifetimes().ref(value);
    whole_.push_back({value, tensor});
  }
  tape.storages().forget_opaque(tensor);
}

void Overwrites::copy_whole() {
  for (const Whole& whole : whole_) {
    if (at::Tensor copy = copy_of_whole(whole.tensor); copy.defined()) {
      const Tape::Lock locked(tape_);
      locked->bytes().hold_whole_copy(whole.value, std::move(copy));
    }
  }
}

int Overwrites::target_of(const c10::StorageImpl* storage) const {
  for (size_t i = 0; i < num_targets_; ++i) {
    if (targets_[i].storage == storage) {
      return static_cast<int>(i);
    }
  }
  return -1;
}

void Overwrites::collect_targets(LockedTape& tape, const OpFacts& facts, c10::ArrayRef<c10::IValue> arguments) {
  for (const uint16_t i : facts.written) {
    for_each_tensor_at(arguments[i], [&](const at::Tensor& tensor, int32_t place) {
      if (tensor.defined()) {
        add(tape, facts, tensor, i, place);
      }
    });
  }
  for (const Argument& argument : arguments_) {
    if (std::find(facts.written_unseen.begin(), facts.written_unseen.end(), argument.argument) !=
        facts.written_unseen.end()) {
      targets_[argument.target].old_bytes = OldBytes::kNotRead;
      targets_[argument.target].accumulates = true;
    }
  }
  if (facts.overwrites) {
    find_what_is_not_read(facts, arguments);
  }
  if (std::any_of(targets_.begin(), targets_.end(), [](const Target& target) { return target.foreign; })) {
    add_aliases(tape);
  }
}

// Memory that no allocator made may be that of a tensor of the region whose pointer the program has. No version counter
// of that tensor is told of the write. A target that is foreign memory itself needs nothing: no replay comes back
// there.
C10_NOINLINE void Overwrites::add_aliases(LockedTape& tape) {
  tape.storages().for_each([&](Value* value) {
    for (const Target& target : targets()) {
      at::Tensor alias = target.foreign ? alias_of(*value, *target.storage) : at::Tensor();
      if (!alias.defined() || target_of(value->original_address()) >= 0) {
        continue;
      }
      Target& added = targets_.emplace_back();
      added.storage = value->original_address();
      added.tensor = std::move(alias);
      added.nbytes = added.storage->nbytes();
      added.old = value;
      added.old_bytes = OldBytes::kNotRead;
      added.accumulates = true;
      return;
    }
  });
}

// An op that overwrites its targets reads what stood there if it also takes the storage as input, or if a part of the
// storage stays.
void Overwrites::find_what_is_not_read(const OpFacts& facts, c10::ArrayRef<c10::IValue> arguments) {
  absl::flat_hash_set<const c10::StorageImpl*> read;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!is_written(facts, i)) {
      for_each_tensor(arguments.slice(i, 1), [&](const at::Tensor& tensor) {
        if (tensor.defined() && has_plain_storage(*tensor.unsafeGetTensorImpl())) {
          read.insert(tensor.unsafeGetTensorImpl()->storage().unsafeGetStorageImpl());
        }
      });
    }
  }
  for (const Argument& argument : arguments_) {
    Target& target = targets_[argument.target];
    if (argument.meta->covers(target.nbytes) && !read.contains(target.storage)) {
      target.old_bytes = OldBytes::kNotRead;
    }
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

bool Overwrites::hand_on(LockedTape& tape, const Target& target, const Outlook& outlook) {
  const bool stays =
      outlook.in_place && !outlook.by_name && !(outlook.offload && tape.offloading().may_leave(target.tensor));
  if (!stays || !target.is_read() || outlook.may_recompute()) {
    return false;
  }
  const TensorMeta* written = only_argument_of(target);
  return written != nullptr && hand_on_hooks(tape, target.old, target.tensor, *written);
}

void Overwrites::add_copies(const Target& target, bool must_know, Copies& copies) const {
  Value* old = target.old;
  if (old->original_is_pinned()) {
    copies.push_back({old, old->there_storage(), true});
  }
  const bool is_used = target.accumulates ? old->is_used_by_ops() : old->is_used();
  if (old->is_lost_by_a_write() && (is_used || must_know)) {
    copies.push_back({old, target.tensor.storage(), false});
  }
}

bool Overwrites::ops_want_what_goes(LockedTape& tape) const {
  return std::any_of(targets_.begin(), targets_.end(), [&](const Target& target) {
    const Value* old = target.old != nullptr ? target.old : tape.storages().find(target.tensor);
    return old != nullptr && old->is_lost_by_a_write() && old->is_used_by_ops();
  });
}

void Overwrites::plan(LockedTape& tape, Target& target, const Outlook& outlook, Copies& copies, OnTheWay& on_the_way) {
  const bool must_know = outlook.may_recompute() && target.is_read();
  Value* old = std::exchange(target.old, nullptr);
  if (old == nullptr) {
    old = must_know ? tape.storages().current(target.tensor) : tape.storages().find(target.tensor);
  }
  if (old == nullptr) {
    return;
  }
  if (target.accumulates && follows_unseen_writes(*old)) {
    target.handed_on = true;
    return;
  }
  if (target.is_read()) {
    tape.is_read(old, target.tensor);
  }
  tape.lifetimes().ref(old);
  target.old = old;
  if (hand_on(tape, target, outlook)) {
    target.handed_on = true;
    return;
  }
  if (old->is_offloaded()) {
    on_the_way.push_back(offloaded_of(*old));
    if (!old->is_replayed()) {
      tape.bytes().drop_there(old);  // host memory has the bytes
    }
  }
  if (target.is_read()) {
    if (old->outlives_a_write() || must_know) {
      target.old_bytes = OldBytes::kRecoverable;
    } else if (outlook.by_name && old->producer() != nullptr && old->producer()->replayable) {
      target.old_bytes = OldBytes::kRecoverableByName;
    }
  }
  add_copies(target, must_know, copies);
  // Its present users may be gone when the op has run, before the op's node uses it.
  if (old->is_used()) {
    tape.lifetimes().use(old);
    target.used = true;
  }
}

void Overwrites::copy_bytes(Copies& copies) {
  for (Copy& copy : copies) {
    c10::Storage bytes = copy_storage(copy.source, copy.value->nbytes());
    const Tape::Lock locked(tape_);
    if (copy.of_original) {
      locked->bytes().copy_original(copy.value, std::move(bytes));
    } else {
      locked->bytes().hold_copy(copy.value, std::move(bytes));
    }
  }
}

void Overwrites::commit(LockedTape& tape) {
  for (Target& target : targets_) {
    if (!target.handed_on) {
      tape.storages().forget(target.storage);
    }
    if (target.old != nullptr) {
      if (target.accumulates) {
        follow_unseen_write(tape, target.old, target.tensor);
      }
      tape.forget_origin(target.old);
    }
  }
}

// Delegates, so that the destructor gives back the values taken so far if this constructor throws: a copy may find no
// memory.
Overwrites::Overwrites(Tape& tape, const OpFacts& facts, c10::ArrayRef<c10::IValue> arguments, Outlook outlook)
    : Overwrites(tape) {
  if (facts.written_only_if >= 0 && !arguments[facts.written_only_if].toBool()) {
    return;
  }
  if (!facts.has_fresh_results) {
    outlook.result.decided = Decided::kSave;
  }
  bool is_tidy = false;
  {
    const Tape::Lock locked(tape);
    collect_targets(*locked, facts, arguments);
    is_tidy = !ops_want_what_goes(*locked);
  }
  if (C10_UNLIKELY(!is_tidy)) {
    tape.sweep_if_due();  // perhaps nothing wants what those ops made
  }
  Copies copies;
  OnTheWay on_the_way;
  {
    const Tape::Lock locked(tape);
    for (Target& target : targets_) {
      plan(*locked, target, outlook, copies, on_the_way);
    }
  }
  for (const c10::intrusive_ptr<OffloadedValue>& offloaded : on_the_way) {
    offloaded->before_write();
  }
  copy_bytes(copies);
  copy_whole();
  const Tape::Lock locked(tape);
  commit(*locked);
}

void Overwrites::note_versions() const {
  for (const SeenWrites::Write& write : writes_) {
    if (!targets_[target_of(write.storage)].accumulates) {
      seen_writes().note(write);
    }
  }
}

Overwrites::~Overwrites() {
  const bool any = std::any_of(targets_.begin(), targets_.end(), [](const Target& t) { return t.old != nullptr; });
  if (!any && whole_.empty()) {
    return;
  }
  const Tape::Lock locked(tape_);
  for (const Whole& whole : whole_) {
    locked->lifetimes().unref(whole.value);
  }
  for (const Target& target : targets_) {
    if (target.old == nullptr) {
      continue;
    }
    if (target.used) {
      locked->lifetimes().unuse(target.old);
    } else if (!target.old->is_used()) {
      locked->bytes().drop_held(target.old);  // a copy that nothing came to use
    }
    locked->lifetimes().unref(target.old);
  }
}

}  // namespace ac2::internal

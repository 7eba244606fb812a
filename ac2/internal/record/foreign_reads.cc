#include "ac2/internal/record/foreign_reads.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "ac2/internal/libtorch/for_each_tensor.h"
#include "ac2/internal/libtorch/storage_copy.h"

namespace ac2::internal {

namespace {

bool has_same_bytes(const c10::Storage& a, const c10::Storage& b) {
  return a.device().is_cpu() && b.device().is_cpu() && a.nbytes() == b.nbytes() &&
         std::memcmp(a.data(), b.data(), a.nbytes()) == 0;
}

}  // namespace

// Delegates, so that the destructor gives back the values taken so far if this constructor throws: a copy may find no
// memory.
ForeignReads::ForeignReads(Tape& tape, c10::ArrayRef<c10::IValue> arguments, int64_t result_bytes)
    : ForeignReads(tape) {
  {
    const Tape::Lock locked(tape);
    find_sources(*locked, arguments);
  }
  int64_t bytes = 0;
  for (Source& source : sources_) {
    if (source.copy != nullptr && !has_same_bytes(source.storage, source.copied)) {
      const Tape::Lock locked(tape);
      forget_copy(*locked, source);
    }
    bytes += source.copy == nullptr ? source.value->bytes() : 0;
  }
  const bool copies = bytes == 0 || bytes < result_bytes;
  for (Source& source : sources_) {
    if (copies && source.copy == nullptr) {
      copy(source);
    } else if (!copies && source.copy != nullptr) {
      const Tape::Lock locked(tape);
      forget_copy(*locked, source);
    }
  }
}

ForeignReads::~ForeignReads() {
  const Tape::Lock locked(tape_);
  for (Source& source : sources_) {
    if (source.copy != nullptr) {
      forget_copy(*locked, source);
    }
    locked->lifetimes().unref(source.value);
  }
}

void ForeignReads::find_sources(LockedTape& tape, c10::ArrayRef<c10::IValue> arguments) {
  for_each_tensor(arguments, [&](const at::Tensor& tensor) {
    Value* value = tensor.defined() ? tape.storages().find(tensor) : nullptr;
    if (value == nullptr || !value->is_foreign() ||
        std::any_of(sources_.begin(), sources_.end(), [value](const Source& s) { return s.value == value; })) {
      return;
    }
    tape.lifetimes().ref(value);
    Source& source = sources_.emplace_back(Source{.value = value, .storage = tensor.storage()});
    if (Value* last = tape.foreign_copies().last(source.storage.unsafeGetStorageImpl())) {
      tape.lifetimes().ref(last);
      source.copy = last;
      source.copied = last->held_storage();
    }
  });
}

void ForeignReads::forget_copy(LockedTape& tape, Source& source) {
  Value* copy = std::exchange(source.copy, nullptr);
  if (!copy->is_used()) {
    tape.bytes().drop_held(copy);  // nothing came to use it
  }
  tape.lifetimes().unref(copy);
}

void ForeignReads::copy(Source& source) {
  c10::Storage bytes = copy_storage(source.storage, source.value->nbytes());
  const Tape::Lock locked(tape_);
  source.copy = locked->lifetimes().make_value(bytes);
  locked->lifetimes().ref(source.copy);
  locked->bytes().hold_copy(source.copy, std::move(bytes));
  locked->foreign_copies().set(source.storage.unsafeGetStorageImpl(), source.copy);
}

Value* ForeignReads::copy_of(const Value& value) const {
  const auto it = std::find_if(sources_.begin(), sources_.end(), [&](const Source& s) { return s.value == &value; });
  return it != sources_.end() ? it->copy : nullptr;
}

}  // namespace ac2::internal

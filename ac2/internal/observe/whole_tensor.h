// A tensor that is not a plain storage, and cannot be taken apart, is held as it is.
#pragma once

#include <string>

#include "ac2/internal/graph/value.h"

namespace ac2::internal {

// The kind of tensor that the value is, in a word or two, with the class if it is one of Python's; empty if it is a
// storage, or held by its parts. Asks the tensor nothing that might call Python. Needs the tape's lock.
inline std::string kind_of_whole_tensor(const Value& value) {
  const OpaqueForm* form = value.opaque_form();
  if (form == nullptr || !form->parts.isNone()) {
    return "";
  }
  // Before the tensor is held, the hook that wants it saved has it.
  c10::intrusive_ptr<c10::TensorImpl> impl = form->origin.lock();
  if (form->held.defined()) {
    impl = form->held.getIntrusivePtr();
  }
  if (!impl) {
    return "";
  }
  const c10::DispatchKeySet keys = impl->key_set();
  if (keys.has(c10::DispatchKey::Python)) {
    return form->class_name.empty() ? "subclass" : "subclass " + form->class_name;
  }
  if (keys.has_any(c10::DispatchKeySet({c10::DispatchKey::Sparse, c10::DispatchKey::SparseCsr}))) {
    return "sparse";
  }
  if (keys.has(c10::DispatchKey::NestedTensor)) {
    return "nested";
  }
  return keys.has(c10::DispatchKey::Quantized) ? "quantized" : "other";
}

}  // namespace ac2::internal

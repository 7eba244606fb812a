// Python's decisions on an op, made into the runtime's.
//
// Threads: any that has the GIL.
#pragma once

#include <torch/csrc/utils/pybind.h>

#include <string>

#include "ac2/policy.h"
#include "python/binding/held_object.h"

namespace ac2::python {

// ac2.SaveWithHooks, and what a form of ac2.forms.functions() is made of. Its decision is made once, so that all copies
// share their hooks.
class PySaveWithHooks {
 public:
  PySaveWithHooks(pybind11::function pack, pybind11::function unpack, bool exact = false);

  const PolicyDecision& decision() const { return decision_; }
  pybind11::handle pack() const { return pack_.get(); }
  pybind11::handle unpack() const { return unpack_.get(); }

  // For Python's collector. Nobody else has the hooks, and through them the functions.
  bool is_sole_owner() const { return decision_.form().use_count() == 1; }
  void clear();

 private:
  HeldObject pack_;
  HeldObject unpack_;
  PolicyDecision decision_;  // its hooks have the same two
};

// Of a member of a CheckpointPolicy (ours or PyTorch's), a bool, an ac2.Form, or an ac2.SaveWithHooks. Raises
// TypeError, which names `where` and what was found, for anything else.
PolicyDecision to_decision(pybind11::handle answer, const std::string& where);
// The member of ac2.CheckpointPolicy, or a text: the name of a form, or "SaveWithHooks".
pybind11::object from_decision(const PolicyDecision& decision);

void add_decisions(pybind11::module_& module);

}  // namespace ac2::python

// Python's decisions on an op, made into the runtime's.
//
// Threads: any that has the GIL.
#pragma once

#include <torch/csrc/utils/pybind.h>

#include <optional>
#include <string>

#include "ac2/policy.h"
#include "python/binding/held_object.h"

namespace ac2::python {

// ac2.SaveWithHooks: its decision is made once, so that all copies share their hooks.
class PySaveWithHooks {
 public:
  PySaveWithHooks(pybind11::function pack, pybind11::function unpack);

  const PolicyDecision& decision() const { return decision_; }
  pybind11::handle pack() const { return pack_.get(); }
  pybind11::handle unpack() const { return unpack_.get(); }

  // For Python's collector. Nobody else has the hooks, and through them the functions.
  bool is_sole_owner() const { return decision_.save_with_hooks().use_count() == 1; }
  void clear();

 private:
  HeldObject pack_;
  HeldObject unpack_;
  PolicyDecision decision_;  // its hooks have the same two
};

// A form of the library's own that values are packed in, such as ac2.policies.quantized_form(8).
struct PyForm {
  static PyForm quantized(int64_t bits, uint64_t seed);

  PolicyDecision decision;
  int64_t bits = 0;
  uint64_t seed = 0;
};

// Of an ac2.SaveWithHooks or such a form; nothing of None. Raises TypeError for anything else.
std::optional<PolicyDecision> to_form(pybind11::handle given, const char* name);
// Of a member of a CheckpointPolicy (ours or PyTorch's), a bool, or an ac2.SaveWithHooks. Raises TypeError, which names
// `where` and what was found, for anything else.
PolicyDecision to_decision(pybind11::handle answer, const std::string& where);
// The member of ac2.CheckpointPolicy, or the ac2.SaveWithHooks.
pybind11::object from_decision(const PolicyDecision& decision);

void add_decisions(pybind11::module_& module);

}  // namespace ac2::python

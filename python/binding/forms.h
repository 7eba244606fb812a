// Forms as Python gives them, made into the runtime's: those of ac2.forms, and objects of classes of the program's own
// that are derived from ac2.Form.
//
// Threads: any that has the GIL.
#pragma once

#include <torch/csrc/utils/pybind.h>

#include "ac2/form.h"

namespace ac2::python {

// Whether it is an object of a class that is derived from ac2.Form.
bool is_form(pybind11::handle given);
// Of such an object. The same one for as long as anyone has it, so that two decisions for one form are equal. Raises
// TypeError for a form whose name or is_exact is none.
FormPtr to_form(pybind11::handle form);
// Of a list that Python has checked.
Forms to_forms(const pybind11::sequence& forms);

void add_forms(pybind11::module_& module);

}  // namespace ac2::python

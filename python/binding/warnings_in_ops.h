// Warnings of ac2 from inside an op, as Python's.
//
//   add_warnings_in_ops(module);
//   _C.take_warnings()                 // in Python, at the end of a scope: the texts that have come on this thread
//   _C.after_backward(text_of)         // at the end of the next backward warns of what text_of() returns, if anything
//
// LibTorch's bindings raise a warning that is an error (python -W error) when the op has its result, and lose the
// result, whose graph is then never freed. So what is warned of in an op of a region waits for the end of a scope.
// Outside of regions nothing takes the warning, and LibTorch's way is the only one.
#pragma once

#include <pybind11/pybind11.h>

#include <string>

namespace ac2::python {

// Of HostLanguage: for the end of a scope on this thread. False if there is none.
bool keep_for_the_end_of_a_scope(const std::string& text);

void add_warnings_in_ops(pybind11::module_& module);

}  // namespace ac2::python

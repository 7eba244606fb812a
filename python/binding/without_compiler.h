// While one lives, Dynamo compiles no frame of Python's that this thread runs.
//
//   const WithoutCompiler without_compiler;
//   policy_fn(context, op);
//
// Inside of torch.compile Dynamo looks at every frame of Python's that is run, and with fullgraph=True a frame that it
// cannot compile is an error. A policy or a pack function runs in the middle of an op, so that Dynamo would take the
// function for a part of the program that it compiles.
//
// Threads: one, with Python's lock.
#pragma once

#include <pybind11/pybind11.h>

namespace ac2::python {

class WithoutCompiler {
 public:
  WithoutCompiler() : before_(set(Py_None)) {}
  ~WithoutCompiler() {
    if (before_ != nullptr && before_ != Py_None) {
      Py_XDECREF(set(before_));
    }
    Py_XDECREF(before_);
  }
  WithoutCompiler(const WithoutCompiler&) = delete;
  WithoutCompiler& operator=(const WithoutCompiler&) = delete;

 private:
  // Returns a new reference to what was set before; null if that failed.
  static PyObject* set(PyObject* callback) {
    static PyObject* const function =
        pybind11::object(pybind11::module_::import("torch._C._dynamo.eval_frame").attr("set_eval_frame"))
            .release()
            .ptr();
    PyObject* const before = PyObject_CallOneArg(function, callback);
    if (before == nullptr) {
      PyErr_Clear();
    }
    return before;
  }

  PyObject* const before_;
};

}  // namespace ac2::python

// Errors that cross between C++ and Python.
//
//   throw_python_error();                                   // throws the error that Python has set
//   with_value_errors([&] { return make_policy(text); });   // a c10::Error becomes a ValueError
//
// Threads: every thread that has the GIL.
#pragma once

#include <c10/util/Exception.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include <string>
#include <utility>

#include "python/binding/without_compiler.h"

namespace ac2::python {

// Throws the error that Python has set, as PyTorch throws it. The error may pass through threads and reach the caller
// as the same object.
[[noreturn]] inline void throw_python_error() {
  python_error error;
  error.persist();
  throw error;
}

// Calls `fn`, which calls Python, and throws what that raises as throw_python_error() does.
template <class Fn>
decltype(auto) calling_python(Fn&& fn) {
  try {
    return std::forward<Fn>(fn)();
  } catch (pybind11::error_already_set& error) {
    error.restore();
  } catch (const pybind11::builtin_exception& error) {
    error.set_error();
  }
  throw_python_error();
}

// Calls `fn`, whose warnings are Python's: filters see them, and may make errors of them.
template <class Fn>
auto with_python_warnings(Fn&& fn) {
  decltype(fn()) result;  // destroyed if the handler's destructor throws
  {
    torch::PyWarningHandler handler;
    try {
      result = std::forward<Fn>(fn)();
    } catch (...) {
      handler.set_in_exception();
      throw;
    }
  }
  return result;
}

// Warns of a TypeError that an op is about to throw. With no error set.
inline void warn_of_type_error(const std::string& text) {
  const std::string warning =
      "A policy or pack function ended with a TypeError, which Python's operators on tensors "
      "(a @ b) replace by one about unsupported operands: " +
      text;
  if (PyErr_WarnEx(PyExc_RuntimeWarning, warning.c_str(), 1) != 0) {
    PyErr_Clear();  // the program makes errors of warnings, and the TypeError is one already
  }
}

// As calling_python(), for a function of the program's that an op calls. Python's operators on tensors put an error of
// their own in the place of every TypeError, so that a warning has to say what it was. Rejected: another type of error,
// because exceptions of the program's reach the caller as themselves.
template <class Fn>
decltype(auto) calling_python_in_op(Fn&& fn) {
  try {
    const WithoutCompiler without_compiler;
    return std::forward<Fn>(fn)();
  } catch (pybind11::error_already_set& error) {
    if (error.matches(PyExc_TypeError)) {
      warn_of_type_error(pybind11::str(error.value()).cast<std::string>());
    }
    error.restore();
  } catch (const pybind11::builtin_exception& error) {
    if (dynamic_cast<const pybind11::type_error*>(&error) != nullptr) {
      warn_of_type_error(error.what());
    }
    error.set_error();
  }
  throw_python_error();
}

// Calls `fn`, whose c10::Error is about wrong arguments.
template <class Fn>
decltype(auto) with_value_errors(Fn&& fn) {
  try {
    return std::forward<Fn>(fn)();
  } catch (const c10::Error& error) {
    throw pybind11::value_error(error.what_without_backtrace());
  }
}

// Makes errors of our functions reach Python without a C++ backtrace.
inline void translate_errors() {
  pybind11::register_local_exception_translator([](std::exception_ptr pointer) {
    try {
      std::rethrow_exception(pointer);
    } catch (python_error& error) {
      error.restore();
    } catch (const c10::Error& error) {
      torch::translate_exception_to_python(std::current_exception());
    }
  });
}

}  // namespace ac2::python

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

// As calling_python(), for a function of the program's that an op calls. Python's operators on tensors (`a @ b`) put an
// error of their own, "unsupported operand type(s)", in the place of every TypeError. So a TypeError is thrown as the
// cause of a RuntimeError, and a TypeError of ours about an answer of the function as a ValueError.
template <class Fn>
decltype(auto) calling_python_in_op(Fn&& fn) {
  try {
    return std::forward<Fn>(fn)();
  } catch (pybind11::error_already_set& error) {
    const bool is_type_error = error.matches(PyExc_TypeError);
    const std::string text = is_type_error ? pybind11::str(error.value()).cast<std::string>() : std::string();
    error.restore();
    if (is_type_error) {
      pybind11::raise_from(PyExc_RuntimeError, ("A policy or pack function raised a TypeError: " + text).c_str());
    }
  } catch (const pybind11::type_error& error) {
    PyErr_SetString(PyExc_ValueError, error.what());
  } catch (const pybind11::builtin_exception& error) {
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

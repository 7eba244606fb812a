#include "python/binding/kernels.h"

#include <dlfcn.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "ac2/internal/record/kernel_call.h"
#include "ac2/trace.h"
#include "python/binding/errors.h"

namespace ac2::python {

namespace {

namespace py = pybind11;

using Tensors = std::vector<at::Tensor>;

// The tensors that a kernel can reach in what it is given: lists of lists are the deepest that libraries take.
void collect_tensors(PyObject* object, Tensors& tensors, int depth = 0) {
  constexpr int kDeepest = 4;
  if (object == nullptr || depth > kDeepest) {
    return;
  }
  if (PyObject_TypeCheck(object, reinterpret_cast<PyTypeObject*>(THPVariableClass)) != 0) {
    tensors.push_back(THPVariable_Unpack(object));
  } else if (PyTuple_Check(object)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(object); ++i) {
      collect_tensors(PyTuple_GET_ITEM(object, i), tensors, depth + 1);
    }
  } else if (PyList_Check(object)) {
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(object); ++i) {
      collect_tensors(PyList_GET_ITEM(object, i), tensors, depth + 1);
    }
  } else if (PyDict_Check(object)) {
    PyObject* key = nullptr;
    PyObject* value = nullptr;
    Py_ssize_t position = 0;
    while (PyDict_Next(object, &position, &key, &value) != 0) {
      collect_tensors(value, tensors, depth + 1);
    }
  }
}

// Leaked, as the tables below: functions are called while the interpreter ends.
std::unordered_set<std::string>& warned_of() {
  static auto* names = new std::unordered_set<std::string>;
  return *names;
}

// False if the program makes an error of the warning.
bool warn_once(const std::string& name, int64_t bytes) {
  if (!warned_of().insert(name).second) {
    return true;
  }
  const std::string text = "ac2: " + name +
                           " may write to the tensors that it is given, and PyTorch does not see what it writes. So "
                           "what it takes and returns in a "
                           "region is held for backward where it is needed, and not computed again: up to " +
                           std::to_string(bytes) +
                           " bytes in this call. To have it computed again, call it by a function that is an op: "
                           "ac2.replayable(function), or torch.library.custom_op, which says what it writes. This is "
                           "said once for each function.";
  return PyErr_WarnEx(PyExc_UserWarning, text.c_str(), 1) == 0;
}

// Calls `call`, which returns a new reference, or null with an error set.
template <class Call>
PyObject* tell_and_call(const std::string& name, Tensors arguments, Call&& call) {
  std::optional<internal::KernelCall> kernel;
  if (!arguments.empty()) {
    const py::gil_scoped_release no_gil;
    kernel.emplace(arguments);
    arguments.clear();
  }
  py::object result = py::reinterpret_steal<py::object>(call());
  int64_t held = 0;
  if (kernel || live_node_count() > 0) {
    const py::error_scope error;  // the kernel's, if it has failed
    Tensors results;
    collect_tensors(result.ptr(), results);
    const py::gil_scoped_release no_gil;
    if (!kernel) {
      kernel.emplace(arguments);
    }
    kernel->finish(results);
    held = kernel->held_bytes();
    kernel.reset();
    results.clear();
  }
  if (result && held > 0 && !warn_once(name, held)) {
    return nullptr;
  }
  return result.release().ptr();
}

// As tell_and_call(), where no error of C++ may pass.
template <class Collect, class Call>
PyObject* run(const std::string& name, Collect&& collect, Call&& call) noexcept {
  try {
    Tensors arguments;
    if (live_node_count() > 0) {
      std::forward<Collect>(collect)(arguments);
    }
    return tell_and_call(name, std::move(arguments), std::forward<Call>(call));
  } catch (...) {
    torch::translate_exception_to_python(std::current_exception());
    return nullptr;
  }
}

struct Kernel {
  vectorcallfunc original = nullptr;  // null if Python calls it with a tuple and a dict
  std::string name;
};

// By the function object.
std::unordered_map<PyObject*, Kernel>& kernels() {
  static auto* table = new std::unordered_map<PyObject*, Kernel>;
  return *table;
}

PyObject* call_original(const Kernel& kernel, PyObject* function, PyObject* const* arguments, size_t count_and_flag,
                        PyObject* names) {
  if (kernel.original != nullptr) {
    return kernel.original(function, arguments, count_and_flag, names);
  }
  const Py_ssize_t count = PyVectorcall_NARGS(count_and_flag);
  py::tuple tuple(count);
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyTuple_SET_ITEM(tuple.ptr(), i, py::handle(arguments[i]).inc_ref().ptr());
  }
  py::object keywords;
  if (names != nullptr && PyTuple_GET_SIZE(names) > 0) {
    keywords = py::dict();
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names); ++i) {
      if (PyDict_SetItem(keywords.ptr(), PyTuple_GET_ITEM(names, i), arguments[count + i]) != 0) {
        return nullptr;
      }
    }
  }
  return Py_TYPE(function)->tp_call(function, tuple.ptr(), keywords.ptr());
}

// What Python calls in place of the function.
PyObject* call_watched(PyObject* function, PyObject* const* arguments, size_t count_and_flag, PyObject* names) {
  const Kernel& kernel = kernels().find(function)->second;
  return run(
      kernel.name,
      [&](Tensors& tensors) {
        const Py_ssize_t keywords = names != nullptr ? PyTuple_GET_SIZE(names) : 0;
        for (Py_ssize_t i = 0; i < PyVectorcall_NARGS(count_and_flag) + keywords; ++i) {
          collect_tensors(arguments[i], tensors);
        }
      },
      [&] { return call_original(kernel, function, arguments, count_and_flag, names); });
}

// The interpreter calls functions of certain flags past the pointer that is replaced (its specialised CALL
// instructions), and compares their flags as a whole first. So the function gets one more flag, which means something
// only where a type is made. Leaked, because the function lives as long.
void keep_from_being_specialised(PyMethodDef*& definition) {
  if ((definition->ml_flags & METH_VARARGS) == 0) {
    definition = new PyMethodDef(*definition);
    definition->ml_flags |= METH_COEXIST;
  }
}

bool watch_kernel(const py::object& function, std::string name) {
  PyTypeObject* type = Py_TYPE(function.ptr());
  vectorcallfunc* called = nullptr;
  PyMethodDef** definition = nullptr;
  if (type == &PyCFunction_Type) {
    auto* object = reinterpret_cast<PyCFunctionObject*>(function.ptr());
    called = &object->vectorcall;
    definition = &object->m_ml;
  } else if (type == &PyMethodDescr_Type) {
    auto* object = reinterpret_cast<PyMethodDescrObject*>(function.ptr());
    called = &object->vectorcall;
    definition = &object->d_method;
  }
  if (called == nullptr || !kernels().try_emplace(function.ptr(), Kernel{*called, std::move(name)}).second) {
    return false;
  }
  Py_INCREF(function.ptr());
  keep_from_being_specialised(*definition);
  *called = &call_watched;
  return true;
}

bool links_libtorch(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) {
    return false;
  }
  // The table of virtual functions of c10::TensorImpl, which is looked for in the library and in all that it depends
  // on.
  const bool links = dlsym(library, "_ZTVN3c1010TensorImplE") != nullptr;
  dlclose(library);
  return links;
}

}  // namespace

void add_kernels(py::module_& module) {
  module.def("watch_kernel", &watch_kernel);
  module.def("links_libtorch", &links_libtorch);
  module.def("run_kernel",
             [](const std::string& name, const py::object& function, const py::tuple& args, const py::dict& kwargs) {
               PyObject* result = run(
                   name,
                   [&](Tensors& tensors) {
                     collect_tensors(args.ptr(), tensors);
                     collect_tensors(kwargs.ptr(), tensors);
                   },
                   [&] { return PyObject_Call(function.ptr(), args.ptr(), kwargs.ptr()); });
               if (result == nullptr) {
                 throw py::error_already_set();
               }
               return py::reinterpret_steal<py::object>(result);
             });
}

}  // namespace ac2::python

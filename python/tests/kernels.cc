// Kernels as libraries bind them: they take tensors of Python and write through their pointers. Compiled by
// test_kernels.py.
#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros_like.h>
#include <pybind11/pybind11.h>
#include <torch/csrc/autograd/python_variable.h>

namespace py = pybind11;

namespace {

struct Floats {
  explicit Floats(PyObject* tensor) : size(THPVariable_Unpack(tensor).numel()) {
    data = static_cast<float*>(THPVariable_Unpack(tensor).mutable_data_ptr());
  }

  float* data;
  int64_t size;
};

void add_twice(py::handle x, py::handle y) {
  const Floats from(x.ptr());
  const Floats to(y.ptr());
  for (int64_t i = 0; i < to.size; ++i) {
    to.data[i] += 2 * from.data[i];
  }
}

void negate(PyObject* tensor) {
  const Floats to(tensor);
  for (int64_t i = 0; i < to.size; ++i) {
    to.data[i] = -to.data[i];
  }
}

PyObject* neg_(PyObject*, PyObject* tensor) {
  negate(tensor);
  Py_RETURN_NONE;
}

// square(x, *, out)
PyObject* square(PyObject*, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  if (count != 1 || names == nullptr || PyTuple_GET_SIZE(names) != 1) {
    PyErr_SetString(PyExc_TypeError, "square(x, *, out)");
    return nullptr;
  }
  const Floats from(arguments[0]);
  const Floats to(arguments[1]);
  for (int64_t i = 0; i < to.size; ++i) {
    to.data[i] = from.data[i] * from.data[i];
  }
  Py_RETURN_NONE;
}

PyObject* square_by_tuple(PyObject*, PyObject* arguments, PyObject* keywords) {
  const Floats from(PyTuple_GetItem(arguments, 0));
  const Floats to(PyDict_GetItemString(keywords, "out"));
  for (int64_t i = 0; i < to.size; ++i) {
    to.data[i] = from.data[i] * from.data[i];
  }
  Py_RETURN_NONE;
}

PyObject* neg_by_tuple(PyObject*, PyObject* arguments) {
  negate(PyTuple_GetItem(arguments, 0));
  Py_RETURN_NONE;
}

py::object doubled(py::handle x) {
  const at::Tensor made = at::zeros_like(THPVariable_Unpack(x.ptr()).detach());
  auto result = py::reinterpret_steal<py::object>(THPVariable_Wrap(made));
  add_twice(x, result);
  return result;
}

double sum(py::handle x) {
  const Floats from(x.ptr());
  double sum = 0;
  for (int64_t i = 0; i < from.size; ++i) {
    sum += from.data[i];
  }
  return sum;
}

void fail(py::handle x) {
  negate(x.ptr());
  throw py::value_error("after it has written");
}

struct Kernel {
  void call(py::handle y) const { negate(y.ptr()); }
};

PyMethodDef of_the_plain_kind[] = {
    {"neg_", &neg_, METH_O, "neg_(tensor)"},
    {"square", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&square)), METH_FASTCALL | METH_KEYWORDS,
     "square(x, *, out)"},
    {"square_by_tuple", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&square_by_tuple)),
     METH_VARARGS | METH_KEYWORDS, "square_by_tuple(x, *, out)"},
    {"neg_by_tuple", &neg_by_tuple, METH_VARARGS, "neg_by_tuple(tensor)"},
    {nullptr, nullptr, 0, nullptr},
};

// A class without pybind11.
PyMethodDef methods_of_the_plain_kind[] = {
    {"run", &neg_, METH_O, "run(tensor)"},
    {nullptr, nullptr, 0, nullptr},
};
PyType_Slot slots_of_the_plain_kind[] = {
    {Py_tp_methods, methods_of_the_plain_kind},
    {0, nullptr},
};
PyType_Spec plain_kernel = {"kernels.PlainKernel", sizeof(PyObject), 0, Py_TPFLAGS_DEFAULT, slots_of_the_plain_kind};

}  // namespace

PYBIND11_MODULE(kernels, module) {
  module.def("add_twice", &add_twice, "y += 2 * x", py::arg("x"), py::arg("y"));
  module.def("doubled", &doubled);
  module.def("sum", &sum);
  module.def("fail", &fail);
  module.def("negate", [](const py::list& tensors) {
    for (const py::handle tensor : tensors) {
      negate(tensor.ptr());
    }
  });
  module.def("negate", [](double number) { return -number; });
  for (const char* name : {"told_of", "told_of_as_an_error"}) {
    module.def(name, [](py::handle y) { negate(y.ptr()); });
  }
  py::class_<Kernel>(module, "Kernel")
      .def(py::init<>())
      .def("run", &Kernel::call)
      .def("__call__", &Kernel::call)
      .def_static("run_anywhere", [](py::handle y) { negate(y.ptr()); });
  module.attr("PlainKernel") = py::reinterpret_steal<py::object>(PyType_FromSpec(&plain_kernel));
  PyModule_AddFunctions(module.ptr(), of_the_plain_kind);
}

#include "python/binding/exchange_api.h"

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include <cstdint>
#include <exception>

#include "ac2/internal/record/handed_out.h"
#include "ac2/trace.h"

namespace ac2::python {

namespace {

namespace py = pybind11;

constexpr const char* kName = "dlpack_exchange_api";

// DLPackExchangeAPI of DLPack 1.x; LibTorch's header has it only from 2.11 on.
struct ExchangeApi {
  uint32_t major;
  uint32_t minor;
  void* older;
  void* allocate;
  int (*managed_tensor_of)(void* object, void** managed);
  void* object_of;
  int (*tensor_of)(void* object, void* tensor);  // may be null
  void* stream;
};

// PyTorch's, and the one in its place.
ExchangeApi& original() {
  static ExchangeApi table{};
  return table;
}
ExchangeApi& telling() {
  static ExchangeApi table{};
  return table;
}

// False with an error set. The caller has the GIL, as PyTorch's functions demand.
bool tell(PyObject* object) noexcept {
  try {
    if (live_node_count() > 0 && THPVariable_Check(object)) {
      const at::Tensor tensor = THPVariable_Unpack(object);
      const py::gil_scoped_release no_gil;
      internal::before_pointer(tensor);
    }
    return true;
  } catch (...) {
    torch::translate_exception_to_python(std::current_exception());
    return false;
  }
}

int managed_tensor_of(void* object, void** managed) {
  return tell(static_cast<PyObject*>(object)) ? original().managed_tensor_of(object, managed) : -1;
}

int tensor_of(void* object, void* tensor) {
  return tell(static_cast<PyObject*>(object)) ? original().tensor_of(object, tensor) : -1;
}

py::object telling_exchange_api(const py::object& capsule) {
  constexpr uint32_t kMajor = 1;
  if (PyCapsule_IsValid(capsule.ptr(), kName) == 0) {
    return py::none();
  }
  const auto* found = static_cast<const ExchangeApi*>(PyCapsule_GetPointer(capsule.ptr(), kName));
  if (found == &telling() || found->major != kMajor) {
    return py::none();
  }
  original() = *found;
  telling() = *found;
  telling().managed_tensor_of = &managed_tensor_of;
  telling().tensor_of = found->tensor_of != nullptr ? &tensor_of : nullptr;
  return py::reinterpret_steal<py::object>(PyCapsule_New(&telling(), kName, nullptr));
}

}  // namespace

void add_exchange_api(py::module_& module) {
  module.def("telling_exchange_api", &telling_exchange_api);
}

}  // namespace ac2::python

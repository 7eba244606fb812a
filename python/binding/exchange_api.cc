#include "python/binding/exchange_api.h"

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <vector>

#include "ac2/internal/libtorch/process_mappings.h"
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

// What stood in a table before, and the table in the place of one that cannot be written to.
ExchangeApi& before_change() {
  static ExchangeApi table{};
  return table;
}
ExchangeApi& before_copy() {
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

template <ExchangeApi& (*original)()>
int managed_tensor_of(void* object, void** managed) {
  return tell(static_cast<PyObject*>(object)) ? original().managed_tensor_of(object, managed) : -1;
}

template <ExchangeApi& (*original)()>
int tensor_of(void* object, void* tensor) {
  return tell(static_cast<PyObject*>(object)) ? original().tensor_of(object, tensor) : -1;
}

template <ExchangeApi& (*original)()>
void make_telling(ExchangeApi& table) {
  original() = table;
  table.managed_tensor_of = &managed_tensor_of<original>;
  table.tensor_of = table.tensor_of != nullptr ? &tensor_of<original> : nullptr;
}

// Whether the process may write there, as the system says. PyTorch's table is a variable; another library's may be a
// constant.
bool is_writable(const void* at, size_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(at);
  const std::vector<internal::Mapping> mappings = internal::read_mappings();
  const internal::Mapping* const mapping = internal::find_mapping(mappings, begin, begin + bytes);
  return mapping != nullptr && mapping->readable && mapping->writable;
}

// The capsule to be put in the place of the given one; None if nothing is to be put there.
py::object telling_exchange_api(const py::object& capsule) {
  constexpr uint32_t kMajor = 1;
  if (PyCapsule_IsValid(capsule.ptr(), kName) == 0) {
    return py::none();
  }
  auto* found = static_cast<ExchangeApi*>(PyCapsule_GetPointer(capsule.ptr(), kName));
  if (found == &telling() || found->major != kMajor || found->managed_tensor_of == &managed_tensor_of<&before_change>) {
    return py::none();
  }
  // Libraries that have asked for the table already keep its address. A second such table would call the first.
  if (before_change().managed_tensor_of == nullptr && is_writable(found, sizeof(ExchangeApi))) {
    make_telling<&before_change>(*found);
    return py::none();
  }
  telling() = *found;
  make_telling<&before_copy>(telling());
  return py::reinterpret_steal<py::object>(PyCapsule_New(&telling(), kName, nullptr));
}

}  // namespace

void add_exchange_api(py::module_& module) {
  module.def("telling_exchange_api", &telling_exchange_api);
}

}  // namespace ac2::python

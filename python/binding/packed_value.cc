#include "python/binding/packed_value.h"

#include <torch/csrc/autograd/python_variable.h>

#include <string>
#include <utility>
#include <vector>

#include "python/binding/held_object.h"
#include "python/binding/objects.h"

namespace ac2::python {

namespace py = pybind11;

namespace {

// PyTorch's own ConcretePyObjectHolder calls a function that libtorch_python.so does not export, from 2.15 on.
class ObjectHolder final : public c10::ivalue::PyObjectHolder {
 public:
  explicit ObjectHolder(py::object object) : object_(std::move(object)) {}

  PyObject* getPyObject() override { return object_.get().ptr(); }
  c10::InferredType tryToInferType() override { return c10::InferredType("an object of Python's that ac2 holds"); }
  c10::IValue toIValue(const c10::TypePtr& /*type*/, std::optional<int32_t> /*N*/) override {
    TORCH_CHECK(false, "An object of Python's that a pack function returned was taken for a value of TorchScript's.");
  }
  std::string toStr() override {
    const py::gil_scoped_acquire gil;
    return py::str(object_.get());
  }
  std::vector<at::Tensor> extractTensors() override { return {}; }

 private:
  HeldObject object_;
};

// A class derived from these has more to it than C++ would keep.
bool is_exactly(py::handle object, PyTypeObject& type) {
  return Py_TYPE(object.ptr()) == &type;
}

bool is_plain(py::handle object) {
  return object.is_none() || is_exactly(object, PyBool_Type) || is_exactly(object, PyFloat_Type) ||
         is_exactly(object, PyUnicode_Type) || THPVariable_Check(object.ptr());
}

}  // namespace

c10::IValue hold_object(py::handle object) {
  return c10::IValue(c10::intrusive_ptr<c10::ivalue::PyObjectHolder>(
      c10::make_intrusive<ObjectHolder>(py::reinterpret_borrow<py::object>(object))));
}

c10::IValue pack_object(py::handle object) {
  if (THPVariable_Check(object.ptr())) {
    return THPVariable_Unpack(object.ptr());
  }
  if (object.is_none()) {
    return c10::IValue();
  }
  if (is_exactly(object, PyBool_Type)) {
    return object.cast<bool>();
  }
  if (is_exactly(object, PyFloat_Type)) {
    return object.cast<double>();
  }
  if (is_exactly(object, PyUnicode_Type)) {
    return object.cast<std::string>();
  }
  if (is_exactly(object, PyTuple_Type)) {
    // A tuple in a tuple is an object: no recursion over what the user nests.
    std::vector<c10::IValue> elements;
    for (const py::handle element : py::reinterpret_borrow<py::tuple>(object)) {
      elements.push_back(is_plain(element) ? pack_object(element) : hold_object(element));
    }
    return c10::ivalue::Tuple::create(std::move(elements));
  }
  return hold_object(object);
}

py::object unpack_object(const c10::IValue& value) {
  if (value.isTuple()) {
    const auto& elements = value.toTupleRef().elements();
    py::tuple tuple(elements.size());
    for (size_t i = 0; i < elements.size(); ++i) {
      tuple[i] = unpack_object(elements[i]);
    }
    return tuple;
  }
  if (value.isPyObject()) {
    return py::reinterpret_borrow<py::object>(value.toPyObjectHolder()->getPyObject());
  }
  return object_of(value);
}

}  // namespace ac2::python

// A Python object that C++ holds, and may let go of on any thread, with or without the GIL.
#pragma once

#include <c10/core/SafePyObject.h>
#include <torch/csrc/PyInterpreter.h>
#include <torch/csrc/utils/pybind.h>

#include <memory>
#include <utility>

namespace ac2::python {

class HeldObject {
 public:
  explicit HeldObject(pybind11::object object)
      : object_(std::make_shared<c10::SafePyObject>(object.release().ptr(), getPyInterpreter())) {}

  // With the GIL.
  pybind11::handle get() const { return object_->ptr(getPyInterpreter()); }

 private:
  std::shared_ptr<c10::SafePyObject> object_;
};

}  // namespace ac2::python

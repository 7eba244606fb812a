#include "python/binding/warnings_in_ops.h"

#include <pybind11/stl.h>

#include <string>
#include <utility>
#include <vector>

#include "ac2/internal/libtorch/after_backward.h"
#include "ac2/internal/libtorch/per_thread.h"
#include "ac2/internal/libtorch/warn_in_op.h"
#include "ac2/internal/region/policies_here.h"
#include "python/binding/held_object.h"

namespace ac2::python {

namespace {

struct Waiting {
  std::vector<std::string> texts;
};

}  // namespace

bool keep_for_the_end_of_a_scope(const std::string& text) {
  if (!internal::is_region_open_here()) {
    return false;
  }
  internal::PerThread<Waiting>::here().texts.push_back(text);
  return true;
}

namespace {

void after_backward(pybind11::object text_of) {
  internal::after_backward([held = HeldObject(std::move(text_of))] {
    std::string text;
    {
      const pybind11::gil_scoped_acquire lock;
      const pybind11::object result = held.get()();
      text = result.is_none() ? "" : result.cast<std::string>();
    }
    if (!text.empty()) {
      internal::warn_in_op(text);
    }
    return true;
  });
}

}  // namespace

void add_warnings_in_ops(pybind11::module_& module) {
  module.def("after_backward", &after_backward);
  module.def("take_warnings", [] { return std::exchange(internal::PerThread<Waiting>::here().texts, {}); });
}

}  // namespace ac2::python

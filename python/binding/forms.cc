#include "python/binding/forms.h"

#include <torch/csrc/autograd/python_variable.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "ac2/internal/forms/form_access.h"
#include "python/binding/being_packed.h"
#include "python/binding/copies.h"
#include "python/binding/decisions.h"
#include "python/binding/errors.h"
#include "python/binding/held_object.h"
#include "python/binding/packed_value.h"
#include "python/binding/without_compiler.h"

namespace ac2::python {

namespace py = pybind11;

namespace {

// ac2.Form, which is a class of Python's.
py::handle form_class() {
  static PyObject* const form = py::object(py::module_::import("ac2._form").attr("Form")).release().ptr();
  return form;
}

std::string text_of(py::handle object) {
  return py::repr(object).cast<std::string>();
}

std::string name_of(py::handle form) {
  const py::object name = py::getattr(form, "name", py::none());
  if (!py::isinstance<py::str>(name) || py::len(name) == 0) {
    throw py::type_error("The name of the form " + text_of(form) + " is " + text_of(name) +
                         "; expected a text that says all that is needed to make the form again, such as name = "
                         "\"halves\" in its class.");
  }
  return name.cast<std::string>();
}

bool is_exact(py::handle form) {
  const py::object exact = py::getattr(form, "is_exact", py::none());
  if (exact.ptr() != Py_True && exact.ptr() != Py_False) {
    throw py::type_error("is_exact of the form " + text_of(form) + " is " + text_of(exact) +
                         "; expected True if unpack() returns the bits that pack() was given, and False if not.");
  }
  return exact.ptr() == Py_True;
}

bool overrides(py::handle form, const char* function) {
  return !py::type::of(form).attr(function).is(form_class().attr(function));
}

// An object of the program's. The program's Python has references to what it calls ops with, which a form cannot drop.
// The name and whether it is exact are asked for once, because the runtime asks under its locks.
class PythonForm final : public internal::HarmlessForm {
 public:
  explicit PythonForm(const py::object& form)
      : form_(form),
        name_(name_of(form)),
        is_exact_(python::is_exact(form)),
        takes_(overrides(form, "takes")),
        estimates_(overrides(form, "estimate")) {}

  std::string name() const override { return name_; }
  bool is_exact() const override { return is_exact_; }

  bool takes(const FormInput& tensor) const override {
    if (!takes_) {
      return true;
    }
    const py::gil_scoped_acquire gil;
    return calling_python_in_op([&] { return static_cast<bool>(py::bool_(ask("takes", tensor))); });
  }

  std::optional<FormEstimate> estimate(const FormInput& tensor) const override {
    if (!estimates_) {
      return std::nullopt;
    }
    const py::gil_scoped_acquire gil;
    return calling_python_in_op([&]() -> std::optional<FormEstimate> {
      const py::object answer = ask("estimate", tensor);
      if (answer.is_none()) {
        return std::nullopt;
      }
      try {
        const auto [bytes, pack_cost, unpack_cost] = answer.cast<std::tuple<int64_t, double, double>>();
        return FormEstimate{.bytes = bytes, .pack_cost = pack_cost, .unpack_cost = unpack_cost};
      } catch (const py::cast_error&) {
        throw py::type_error("The estimate of the form \"" + name_ + "\" is " + text_of(answer) +
                             "; expected a tuple (bytes, pack_cost, unpack_cost), or None.");
      }
    });
  }

  c10::IValue pack(const at::Tensor& tensor) const override {
    const py::gil_scoped_acquire gil;
    const BeingPacked being_packed(tensor);
    return calling_python_in_op([&] { return pack_object(form_.get().attr("pack")(tensor)); });
  }

  at::Tensor unpack(const c10::IValue& packed) const override {
    const py::gil_scoped_acquire gil;
    return calling_python([&] {
      const WithoutCompiler without_compiler;
      const py::object tensor = form_.get().attr("unpack")(unpack_object(packed));
      if (!THPVariable_Check(tensor.ptr())) {
        throw py::type_error("unpack of the form \"" + name_ + "\" returned " + text_of(py::type::of(tensor)) +
                             "; expected the tensor that was packed, with its sizes, dtype and device.");
      }
      return THPVariable_Unpack(tensor.ptr());
    });
  }

 private:
  py::object ask(const char* function, const FormInput& tensor) const {
    return form_.get().attr(function)(tensor.bytes, tensor.dtype, tensor.device);
  }

  const HeldObject form_;
  const std::string name_;
  const bool is_exact_;
  const bool takes_;
  const bool estimates_;
};

// By the address of the Python object, which lives as long as its form. With the GIL.
std::map<PyObject*, std::weak_ptr<const PythonForm>>& python_forms() {
  static auto* forms = new std::map<PyObject*, std::weak_ptr<const PythonForm>>;
  return *forms;
}

FormPtr form_of_python(py::handle given) {
  auto& forms = python_forms();
  if (const auto found = forms.find(given.ptr()); found != forms.end()) {
    if (std::shared_ptr<const PythonForm> form = found->second.lock()) {
      return form;
    }
  }
  std::erase_if(forms, [](const auto& known) { return known.second.expired(); });
  // Asks the object for its name, which may run Python's code that makes forms.
  auto form = std::make_shared<const PythonForm>(py::reinterpret_borrow<py::object>(given));
  python_forms()[given.ptr()] = form;
  return form;
}

// A form of the runtime's own.
struct LibraryForm {
  FormPtr form;
};

// What such a form has made of a tensor, for a program that calls the form by itself.
struct LibraryPacked {
  c10::IValue packed;
};

FormInput input_of(int64_t bytes, at::ScalarType dtype, c10::Device device) {
  return {.bytes = bytes, .dtype = dtype, .device = device};
}

template <class Make>
LibraryForm made(Make&& make) {
  return {with_value_errors(std::forward<Make>(make))};
}

}  // namespace

bool is_form(py::handle given) {
  return py::isinstance(given, form_class());
}

FormPtr to_form(py::handle form) {
  const py::object made = py::getattr(form, "_made", py::none());
  if (py::isinstance<LibraryForm>(made)) {
    return made.cast<const LibraryForm&>().form;
  }
  if (py::isinstance<PySaveWithHooks>(made)) {
    return made.cast<const PySaveWithHooks&>().decision().form();
  }
  return form_of_python(form);
}

Forms to_forms(const py::sequence& forms) {
  Forms all;
  for (const py::handle form : forms) {
    all.push_back(to_form(form));
  }
  return all;
}

void add_forms(py::module_& module) {
  py::class_<LibraryPacked>(module, "LibraryPacked", "What a form of ac2.forms has made of a tensor.");
  py::class_<LibraryForm> form(module, "LibraryForm", "What a form of ac2.forms is made of.");
  is_not_pickled(copy_is_itself(form))
      .def_property_readonly("name", [](const LibraryForm& self) { return self.form->name(); })
      .def_property_readonly("is_exact", [](const LibraryForm& self) { return self.form->is_exact(); })
      .def("takes", [](const LibraryForm& self, int64_t bytes, at::ScalarType dtype,
                       c10::Device device) { return self.form->takes(input_of(bytes, dtype, device)); })
      .def("estimate",
           [](const LibraryForm& self, int64_t bytes, at::ScalarType dtype,
              c10::Device device) -> std::optional<std::tuple<int64_t, double, double>> {
             const std::optional<FormEstimate> found = self.form->estimate(input_of(bytes, dtype, device));
             return found ? std::optional(std::tuple(found->bytes, found->pack_cost, found->unpack_cost))
                          : std::nullopt;
           })
      .def("pack",
           [](const LibraryForm& self, const at::Tensor& tensor) -> std::optional<LibraryPacked> {
             const py::gil_scoped_release no_gil;
             c10::IValue packed = self.form->pack(tensor);
             return packed.isNone() ? std::nullopt : std::optional(LibraryPacked{std::move(packed)});
           })
      .def("unpack", [](const LibraryForm& self, const LibraryPacked& packed) {
        const py::gil_scoped_release no_gil;
        return self.form->unpack(packed.packed);
      });
  module.def("host_memory_form",
             [](const OffloadOptions& options) { return made([&] { return forms::host_memory(options); }); });
  module.def("quantized_form",
             [](int bits, uint64_t seed) { return made([&] { return forms::quantized(bits, seed); }); });
  module.def("narrow_form", [](at::ScalarType format) { return made([&] { return forms::narrow(format); }); });
  module.def("one_bit_form", [] { return made(&forms::one_bit); });
  module.def("file_form", [](const std::string& path) { return made([&] { return forms::file(path); }); });
}

}  // namespace ac2::python

#include "python/binding/decisions.h"

#include <torch/csrc/autograd/python_variable.h>

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "ac2/internal/forms/form_access.h"
#include "ac2/internal/forms/functions_form.h"
#include "python/binding/being_packed.h"
#include "python/binding/copies.h"
#include "python/binding/errors.h"
#include "python/binding/forms.h"
#include "python/binding/held_object.h"
#include "python/binding/packed_value.h"
#include "python/binding/without_compiler.h"

namespace ac2::python {

namespace py = pybind11;

namespace {

constexpr std::array kDecisions{CheckpointPolicy::MUST_SAVE,        CheckpointPolicy::PREFER_SAVE,
                                CheckpointPolicy::MUST_RECOMPUTE,   CheckpointPolicy::PREFER_RECOMPUTE,
                                CheckpointPolicy::MUST_CPU_OFFLOAD, CheckpointPolicy::PREFER_CPU_OFFLOAD};

SaveWithHooks call_python(HeldObject pack, HeldObject unpack) {
  SaveWithHooks functions;
  functions.pack = [pack = std::move(pack)](const at::Tensor& tensor) {
    const py::gil_scoped_acquire gil;
    const BeingPacked being_packed(tensor);
    return calling_python_in_op([&] { return pack_object(pack.get()(tensor)); });
  };
  functions.unpack = [unpack = std::move(unpack)](const c10::IValue& packed) {
    const py::gil_scoped_acquire gil;
    return calling_python([&] {
      const WithoutCompiler without_compiler;
      const py::object tensor = unpack.get()(unpack_object(packed));
      if (!THPVariable_Check(tensor.ptr())) {
        throw py::type_error("An unpack function returned " + py::repr(py::type::of(tensor)).cast<std::string>() +
                             "; expected the tensor that was packed, with its sizes, dtype and device.");
      }
      return THPVariable_Unpack(tensor.ptr());
    });
  };
  return functions;
}

// The enumeration's members by name, made once; both enumerations have names alone in common.
std::optional<CheckpointPolicy> by_name(py::handle member) {
  if (!py::hasattr(member, "name") || !py::hasattr(py::type::of(member), "__members__")) {
    return std::nullopt;
  }
  const py::object name = member.attr("name");
  if (!py::isinstance<py::str>(name)) {
    return std::nullopt;
  }
  const auto text = name.cast<std::string>();
  for (const CheckpointPolicy policy : kDecisions) {
    if (text == to_string(policy)) {
      return policy;
    }
  }
  return std::nullopt;
}

// Members that have been seen are found by their address: they live as long as their class, which this dictionary
// keeps.
py::dict& known_members() {
  static auto* members = new py::dict;
  return *members;
}

PySaveWithHooks* constructed_hooks(PyObject* self) {
  const auto value = reinterpret_cast<py::detail::instance*>(self)->get_value_and_holder();
  return value.holder_constructed() ? value.value_ptr<PySaveWithHooks>() : nullptr;
}

// A function is often a method of what has the hooks.
void take_part_in_collection(PyHeapTypeObject* heap_type) {
  PyTypeObject& type = heap_type->ht_type;
  type.tp_flags |= Py_TPFLAGS_HAVE_GC;
  type.tp_traverse = [](PyObject* self, visitproc visit, void* arg) -> int {
    Py_VISIT(Py_TYPE(self));
    const PySaveWithHooks* hooks = constructed_hooks(self);
    if (hooks != nullptr && hooks->is_sole_owner()) {
      Py_VISIT(hooks->pack().ptr());
      Py_VISIT(hooks->unpack().ptr());
    }
    return 0;
  };
  type.tp_clear = [](PyObject* self) -> int {
    if (PySaveWithHooks* hooks = constructed_hooks(self)) {
      hooks->clear();
    }
    return 0;
  };
}

PolicyDecision decision_of_form(FormPtr form, py::handle given, const std::string& where) {
  const OffloadOptions* options = internal::FormAccess::copied_with(*form);
  if (options != nullptr && *options != OffloadOptions()) {
    throw py::value_error(
        where + " is " + py::repr(given).cast<std::string>() +
        ", which has options of its own. For what policies decide the options are those of the scope: "
        "decide for ac2.forms.host_memory(), and give the scope offload=ac2.OffloadOptions(...).");
  }
  return form;
}

}  // namespace

// Python's frames have references to what they call ops with, which a function cannot drop.
PySaveWithHooks::PySaveWithHooks(py::function pack, py::function unpack, bool exact)
    : pack_(std::move(pack)),
      unpack_(std::move(unpack)),
      decision_(std::make_shared<const internal::FunctionsForm>(call_python(pack_, unpack_), exact)) {}

void PySaveWithHooks::clear() {
  decision_ = CheckpointPolicy::MUST_SAVE;
  pack_ = HeldObject(py::none());
  unpack_ = HeldObject(py::none());
}

PolicyDecision to_decision(py::handle answer, const std::string& where) {
  if (answer.ptr() == Py_True || answer.ptr() == Py_False) {
    return answer.ptr() == Py_True;
  }
  if (py::isinstance<PySaveWithHooks>(answer)) {
    return answer.cast<const PySaveWithHooks&>().decision();
  }
  if (Py_TYPE(answer.ptr())->tp_hash != PyObject_HashNotImplemented) {
    if (PyObject* known = PyDict_GetItemWithError(known_members().ptr(), answer.ptr())) {
      return static_cast<CheckpointPolicy>(PyLong_AsLong(known));
    }
    if (PyErr_Occurred() != nullptr) {
      throw py::error_already_set();
    }
  }
  if (const auto policy = by_name(answer)) {
    known_members()[answer] = static_cast<int>(*policy);
    return *policy;
  }
  if (is_form(answer)) {
    return decision_of_form(to_form(answer), answer, where);
  }
  throw py::type_error(where + " is " + py::repr(answer).cast<std::string>() +
                       "; expected a member of ac2.CheckpointPolicy, a bool (True saves), a form (ac2.forms), or an "
                       "ac2.SaveWithHooks(pack, unpack).");
}

py::object from_decision(const PolicyDecision& decision) {
  const py::module_ package = py::module_::import("ac2._policy");
  if (decision.save_with_hooks()) {
    return py::str("SaveWithHooks");
  }
  if (decision.form() != nullptr) {
    return py::str(decision.form()->name());
  }
  return package.attr("CheckpointPolicy").attr(to_string(decision.policy()));
}

void add_decisions(py::module_& module) {
  py::class_<PySaveWithHooks> hooks(module, "SaveWithHooks", py::custom_type_setup(&take_part_in_collection),
                                    R"(SaveWithHooks(pack, unpack)

A decision of a policy: saves a result in another form.

Args:
    pack: ``pack(tensor)`` runs in forward, once, when something first needs the result for backward. It may return
        any object: a tensor, a tuple of codes and scales, a file name. It must not write to the tensor.
    unpack: ``unpack(packed)`` runs in backward, each time the value is needed. It returns a tensor of the sizes,
        dtype and device of the one that was packed; strides may differ.

The ops inside both run as if no region were open. What they raise reaches the caller as itself: from the op that
needed the value, or from backward. Counts as a MUST decision.)");
  is_not_pickled(copy_is_itself(hooks))
      .def(py::init<py::function, py::function>(), py::arg("pack"), py::arg("unpack"))
      // For ac2.forms.functions().
      .def_static("_with_exact",
                  [](py::function pack, py::function unpack, bool exact) {
                    return std::make_unique<PySaveWithHooks>(std::move(pack), std::move(unpack), exact);
                  })
      .def_property_readonly("_name",
                             [](const PySaveWithHooks& self) {
                               const FormPtr& form = self.decision().form();  // null if it was collected
                               return form != nullptr ? form->name() : std::string();
                             })
      .def_property_readonly("pack", &PySaveWithHooks::pack)
      .def_property_readonly("unpack", &PySaveWithHooks::unpack);
}

}  // namespace ac2::python

#include "python/binding/memory_fraction.h"

#include "ac2/internal/allocator/accelerator_room.h"

namespace ac2::python {

void add_memory_fraction(pybind11::module_& module) {
  module.def("note_memory_fraction", &internal::note_memory_fraction, pybind11::arg("device"),
             pybind11::arg("fraction"));
}

}  // namespace ac2::python

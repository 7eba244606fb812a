#include "python/binding/memory_fraction.h"

#include <c10/core/Device.h>

#include <memory>
#include <tuple>
#include <utility>

#include "ac2/internal/allocator/memory_fraction.h"

namespace ac2::python {

namespace {

using DeviceAndFraction = std::pair<c10::DeviceIndex, double>;

void set_by_torch(c10::DeviceIndex device, double fraction) {
  pybind11::module_::import("torch").attr("cuda").attr("set_per_process_memory_fraction")(fraction, device);
}

// Takes Python's lock, if this thread does not have it.
void set_now(c10::DeviceIndex device, double fraction) {
  const pybind11::gil_scoped_acquire python;
  set_by_torch(device, fraction);
}

// By the main thread, before it runs its next lines of Python. A destructor must not wait for Python's lock.
void set_later(c10::DeviceIndex device, double fraction) {
  if (Py_IsInitialized() == 0) {
    return;
  }
  auto set = std::make_unique<DeviceAndFraction>(device, fraction);
  const int failed = Py_AddPendingCall(
      [](void* given) {
        const std::unique_ptr<DeviceAndFraction> wanted(static_cast<DeviceAndFraction*>(given));
        try {
          set_by_torch(wanted->first, wanted->second);
        } catch (pybind11::error_already_set& error) {
          error.discard_as_unraisable("ac2 sets the fraction of a device's memory back");
        }
        return 0;
      },
      set.get());
  if (failed == 0) {
    std::ignore = set.release();
  }
}

constexpr internal::MemoryFractionSource kSource = {.set = &set_now, .set_later = &set_later};

}  // namespace

void add_memory_fraction(pybind11::module_& module) {
  internal::set_memory_fraction_source(&kSource);
  module.def("note_memory_fraction", &internal::note_memory_fraction, pybind11::arg("device"),
             pybind11::arg("fraction"));
}

}  // namespace ac2::python

// Python's object of a trace.
#pragma once

#include <memory>

#include "ac2/trace.h"

namespace ac2::python {

// pybind11 cannot hold a shared pointer to const by itself.
struct PyTrace {
  std::shared_ptr<const Trace> trace;
};

}  // namespace ac2::python

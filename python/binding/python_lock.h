// Python's lock, for the runtime: see ac2/internal/libtorch/python_lock.h.
#pragma once

namespace ac2::python {

// Once.
void install_python_lock();

}  // namespace ac2::python

// Python as the library knows it: see ac2/internal/libtorch/host_language.h.
#pragma once

namespace ac2::python {

// Once, when all other parts of the module are there. Needs the GIL.
void install_python();

}  // namespace ac2::python

// Wrapper subclasses of Python's, for the runtime: see ac2/internal/replay/subclass_codec.h.
#pragma once

namespace ac2::python {

// Once.
void install_subclass_codec();

}  // namespace ac2::python

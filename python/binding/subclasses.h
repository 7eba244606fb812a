// Wrapper subclasses of Python's, for the runtime: see ac2/internal/replay/subclass_codec.h.
#pragma once

#include "ac2/internal/replay/subclass_codec.h"

namespace ac2::python {

// Of HostLanguage.
const internal::SubclassCodec& subclass_codec();

}  // namespace ac2::python

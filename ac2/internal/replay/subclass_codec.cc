#include "ac2/internal/replay/subclass_codec.h"

#include "ac2/internal/libtorch/host_language.h"

namespace ac2::internal {

const SubclassCodec* subclass_codec() {
  const HostLanguage* host = host_language();
  return host != nullptr ? host->subclasses : nullptr;
}

}  // namespace ac2::internal

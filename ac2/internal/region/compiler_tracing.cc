#include "ac2/internal/region/compiler_tracing.h"

#include "ac2/internal/libtorch/unrecorded.h"

namespace ac2::internal {

CompilerTracing::CompilerTracing() {
  ++Unrecorded::depth();
}

CompilerTracing::~CompilerTracing() {
  --Unrecorded::depth();
}

}  // namespace ac2::internal

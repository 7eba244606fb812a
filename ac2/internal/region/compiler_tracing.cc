#include "ac2/internal/region/compiler_tracing.h"

namespace ac2::internal {

namespace {

thread_local int depth = 0;

}  // namespace

CompilerTracing::CompilerTracing() {
  ++depth;
}

CompilerTracing::~CompilerTracing() {
  --depth;
}

bool CompilerTracing::here() {
  return depth > 0;
}

}  // namespace ac2::internal

#include "tests/gpu/device_limit.h"

namespace ac2::test {

void empty_cache() {}

MemoryFraction::MemoryFraction(double) {}

MemoryFraction::~MemoryFraction() = default;

}  // namespace ac2::test

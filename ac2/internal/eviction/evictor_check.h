// What a caller of the evictor must keep to. Not TORCH_CHECK: nothing of LibTorch is included here.
#pragma once

#include <stdexcept>

namespace ac2::internal {

inline void evictor_check(bool condition, const char* message) {
  if (!condition) [[unlikely]] {
    throw std::logic_error(message);
  }
}

}  // namespace ac2::internal

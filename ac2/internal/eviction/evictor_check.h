// Checks what a caller of the evictor must keep to. The check does not use TORCH_CHECK, because this room includes
// nothing of LibTorch.
#pragma once

#include <stdexcept>

namespace ac2::internal {

inline void evictor_check(bool condition, const char* message) {
  if (!condition) [[unlikely]] {
    throw std::logic_error(message);
  }
}

}  // namespace ac2::internal

#include "ac2/internal/libtorch/out_of_memory.h"

#include <c10/util/Exception.h>

#include <new>
#include <string_view>

namespace ac2::internal {

bool is_out_of_memory(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr ||
      dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr) {
    return true;
  }
  const auto* c10_error = dynamic_cast<const c10::Error*>(&error);
  return c10_error != nullptr &&
         std::string_view(c10_error->what_without_backtrace()).find("can't allocate memory") != std::string_view::npos;
}

}  // namespace ac2::internal

#include "ac2/bytes.h"

#include <c10/util/Exception.h>

#include <stdexcept>

#include "ac2/internal/bytes/parse_bytes.h"

namespace ac2 {

int64_t Bytes::count_in(std::string_view text) {
  try {
    return internal::parse_bytes(text, "A number of bytes");
  } catch (const std::invalid_argument& error) {
    TORCH_CHECK(false, error.what());
  }
}

}  // namespace ac2

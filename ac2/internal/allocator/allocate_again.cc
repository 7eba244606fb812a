#include "ac2/internal/allocator/allocate_again.h"

#include <c10/util/Exception.h>

#include <cstdint>
#include <string>

#include "ac2/internal/allocator/shortage.h"
#include "ac2/internal/libtorch/out_of_memory.h"

namespace ac2::internal {

c10::DataPtr allocate_again(c10::Device device, size_t bytes, c10::function_ref<c10::DataPtr()> allocate,
                            void (*last_resort)()) {
  for (;;) {
    const int64_t freed = relieve_shortage(device, static_cast<int64_t>(bytes / 8 + 1));
    if (freed == 0 && last_resort != nullptr) {
      last_resort();
    }
    try {
      return allocate();
    } catch (c10::Error& error) {
      if (!is_out_of_memory(error)) {
        throw;
      }
      if (freed == 0) {
        if (const std::string text = shortage_text(device); !text.empty()) {
          error.add_context(text);
        }
        throw;
      }
    }
  }
}

}  // namespace ac2::internal

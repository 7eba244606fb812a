// The check of OffloadOptions that are given to a scope or to a form.
#pragma once

#include <c10/util/Exception.h>

#include "ac2/offload_options.h"

namespace ac2::internal {

// Throws c10::Error for a negative number of bytes.
inline void check_offload_options(const OffloadOptions& options) {
  const auto check = [](const char* name, int64_t bytes) {
    TORCH_CHECK(bytes >= 0, "OffloadOptions::", name, " is ", bytes, "; expected a number of bytes, 0 or more.");
  };
  check("min_bytes", options.min_bytes);
  check("read_ahead_bytes", options.read_ahead_bytes);
  check("in_flight_bytes", options.in_flight_bytes);
  check("max_pinned_bytes", options.max_pinned_bytes);
}

}  // namespace ac2::internal

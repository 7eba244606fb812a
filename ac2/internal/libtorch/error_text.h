// The text of an error without LibTorch's backtrace, for lines on standard error.
#pragma once

#include <c10/util/Exception.h>

#include <exception>
#include <string>

namespace ac2::internal {

inline std::string error_text(const std::exception& error) {
  const auto* const of_torch = dynamic_cast<const c10::Error*>(&error);
  return of_torch != nullptr ? of_torch->what_without_backtrace() : error.what();
}

}  // namespace ac2::internal

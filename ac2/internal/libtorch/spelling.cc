#include "ac2/internal/libtorch/spelling.h"

#include "ac2/internal/libtorch/host_language.h"

namespace ac2::internal {

std::string spelled(std::string_view in_cpp, std::string_view in_python) {
  const bool python = is_python_there();
  return std::string(python ? in_python : in_cpp) + (python ? "; in C++ " : "; in Python ") +
         std::string(python ? in_cpp : in_python);
}

}  // namespace ac2::internal

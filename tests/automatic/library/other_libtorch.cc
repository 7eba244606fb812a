// Stands for LibTorch of another version: it says so, and has nothing else.
#include <string>

namespace at {
std::string show_config();
std::string show_config() {
  return "PyTorch built with:\n  - Build settings: BLAS_INFO=mkl, TORCH_VERSION=2.99.1, USE_CUDA=0, \n";
}
}  // namespace at

extern "C" void run_plugin() {}

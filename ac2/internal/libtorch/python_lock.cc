#include "ac2/internal/libtorch/python_lock.h"

#include "ac2/internal/libtorch/host_language.h"

namespace ac2::internal {

WithoutPythonLock::WithoutPythonLock() {
  if (const HostLanguage* host = host_language()) {
    let_go_ = host->let_go_of_lock();
  }
}

WithoutPythonLock::~WithoutPythonLock() {
  if (let_go_ != nullptr) {
    host_language()->take_lock_again(let_go_);
  }
}

}  // namespace ac2::internal

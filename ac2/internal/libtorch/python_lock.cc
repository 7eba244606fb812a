#include "ac2/internal/libtorch/python_lock.h"

#include <atomic>

namespace ac2::internal {

namespace {

std::atomic<const PythonLock*> installed_lock{nullptr};

}  // namespace

void set_python_lock(const PythonLock* lock) {
  // Pairs with the acquire of the constructor. A thread that follows the pointer sees the functions.
  installed_lock.store(lock, std::memory_order_release);
}

bool is_python_there() {
  return installed_lock.load(std::memory_order_relaxed) != nullptr;
}

WithoutPythonLock::WithoutPythonLock() {
  if (const PythonLock* lock = installed_lock.load(std::memory_order_acquire)) {
    let_go_ = lock->let_go();
  }
}

WithoutPythonLock::~WithoutPythonLock() {
  if (let_go_ != nullptr) {
    installed_lock.load(std::memory_order_acquire)->take_again(let_go_);
  }
}

}  // namespace ac2::internal

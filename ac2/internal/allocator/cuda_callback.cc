#include "ac2/internal/allocator/cuda_callback.h"

#include <c10/core/Device.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <dlfcn.h>

#include <atomic>

#include "ac2/internal/allocator/accelerator_room.h"
#include "ac2/internal/locks/fork_locks.h"
#include "ac2/internal/locks/mutex.h"

namespace ac2::internal {

namespace {

constexpr char kName[] = "ac2";

class FreesValues final : public c10::FreeMemoryCallback {
 public:
  bool Execute() override {
    try {
      return make_room_on(c10::impl::getDeviceGuardImpl(c10::DeviceType::CUDA)->getDevice());
    } catch (...) {
      return false;  // The allocator says that there is no memory, and not what it could not find out about it.
    }
  }
};

FreeMemoryRegistry* registry_of_cuda() {
  // Where it is loaded already; Python loads it such that only its handle leads to its names.
  void* library = dlopen("libc10_cuda.so", RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) {
    return nullptr;
  }
  void* function = dlsym(library, "_ZN3c1031FreeCudaMemoryCallbacksRegistryB5cxx11Ev");
  return function != nullptr ? reinterpret_cast<FreeMemoryRegistry* (*)()>(function)() : nullptr;
}

}  // namespace

bool register_free_memory_callback(FreeMemoryRegistry& registry) {
  if (registry.Has(kName)) {
    return false;
  }
  registry.Register(kName, [] { return std::unique_ptr<c10::FreeMemoryCallback>(std::make_unique<FreesValues>()); });
  return true;
}

void ask_us_where_cuda_runs_out() {
  // Registered by the library that has the allocator. Each region asks, and dlopen() would search the file system for a
  // library that is not loaded.
  if (!c10::impl::hasDeviceGuardImpl(c10::DeviceType::CUDA)) {
    return;
  }
  static std::atomic<bool> is_done{false};
  if (is_done.load(std::memory_order_acquire)) {
    return;
  }
  static auto& mutex = ForkLocks::make_first<Mutex>();
  const MutexLock lock(mutex);
  if (is_done.load(std::memory_order_relaxed)) {
    return;
  }
  if (FreeMemoryRegistry* registry = registry_of_cuda()) {
    register_free_memory_callback(*registry);
    is_done.store(true, std::memory_order_release);
  }
}

}  // namespace ac2::internal

// Differences between LibTorch versions, and the extension points of LibTorch that ac2 occupies. No other file may
// depend on either.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/DispatchKey.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/TensorImpl.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <optional>
#include <utility>

namespace c10 {
class KernelFunction;
class OperatorHandle;
}  // namespace c10

namespace ac2::internal {

// The dispatch key at which ops are recorded: below ADInplaceOrView and Autograd, above every backend, and from 2.13 on
// below Python. PyTorch is about to use it for a FakeTensor mode of its own, so that only this line may name it.
inline constexpr c10::DispatchKey kRecordKey = c10::DispatchKey::Fake;

// The keys that an op goes on to when it has been recorded.
inline constexpr c10::DispatchKeySet kBelowRecordKey{c10::DispatchKeySet::FULL_AFTER, kRecordKey};

// The dispatch key at which ops come to hold their arguments (record/held_arguments.h): above autograd, autocast and
// functorch's gradients. PyTorch has it for torchdistx alone.
inline constexpr c10::DispatchKey kHoldKey = c10::DispatchKey::DeferredInit;
inline constexpr c10::DispatchKeySet kBelowHoldKey{c10::DispatchKeySet::FULL_AFTER, kHoldKey};

// The dispatch key at which ops that write are watched (record/write_watch.h). It is included for every thread.
inline constexpr c10::DispatchKey kWatchKey = c10::DispatchKey::BackendSelect;
inline constexpr c10::DispatchKeySet kBelowWatchKey{c10::DispatchKeySet::FULL_AFTER, kWatchKey};

// The kernel that runs `op` where kRecordKey is the highest key. OperatorHandle has lookup() from 2.14 on.
c10::KernelFunction kernel_behind_record_key(const c10::OperatorHandle& op);

// Whether this thread is in PyTorch's own C++ FakeTensor mode, which there is from 2.14 on.
bool is_in_fake_mode();

// How autograd holds its nodes: std::shared_ptr, from 2.13 on c10::intrusive_ptr. `Edge` is torch::autograd::Edge.
template <class Edge>
using NodePtrOf = decltype(Edge::function);

// An autograd engine that hands on to the one behind it what it does not do itself. `Base` is torch::autograd::Engine;
// the virtual functions that it has in all versions are left to derived classes.
template <class Base>
class EngineInFrontBase : public Base {
 public:
  void put_in_front_of(Base& engine) { behind_.store(&engine, std::memory_order_release); }

 protected:
  Base& behind() const { return *behind_.load(std::memory_order_acquire); }

 private:
  std::atomic<Base*> behind_{nullptr};
};
template <class Base>
class EngineInFront : public EngineInFrontBase<Base> {};
// From 2.14 on: Python's torch.autograd.graph.node_creation_hook.
template <class Base>
requires requires(Base& engine) {
  engine.get_node_creation_hooks();
}
class EngineInFront<Base> : public EngineInFrontBase<Base> {
 public:
  auto get_node_creation_hooks() -> decltype(std::declval<Base&>().get_node_creation_hooks()) override {
    return this->behind().get_node_creation_hooks();
  }
};

// Whether the tensor has an object in Python that no Python code refers to, and that PyTorch keeps for code that asks
// for it next. From 2.10 on such an object counts as one use of the tensor. Before 2.10 the object counts as none, and
// the answer is false. May take Python's lock: not to be called under one of ours.
template <class Impl>
bool is_used_by_idle_python_object(Impl& impl) {
  if constexpr (requires { impl.pyobj_slot()->has_unique_reference(); }) {
    return impl.pyobj_slot()->has_unique_reference();
  } else {
    return false;
  }
}

// Whether the tensor or storage has an object in Python. Takes no lock.
template <class Impl>
bool has_python_object(Impl& impl) {
  if constexpr (requires { impl.pyobj_slot()->load_pyobj(); }) {
    return impl.pyobj_slot()->load_pyobj() != nullptr;
  } else {
    return impl.pyobj_slot()->_unchecked_untagged_pyobj() != nullptr;
  }
}

// The memory of an accelerator.
struct DeviceMemory {
  int64_t free = 0;  // taken by no program
  int64_t total = 0;
  int64_t reserved = 0;  // taken by LibTorch's allocator
  int64_t idle = 0;      // of these, whole blocks that nothing uses, which the allocator gives back before it fails
};

// None before 2.9, or if it does not say.
std::optional<DeviceMemory> memory_of_accelerator(c10::DeviceIndex device);
// The bytes of the accelerator that LibTorch's allocator has handed out and not got back. None before 2.9.
std::optional<int64_t> allocated_bytes_of_accelerator(c10::DeviceIndex device);
// Whether a CUDA graph is captured on this thread's current stream.
bool is_capturing_graph();
// Gives idle memory of the accelerators back. Waits for them. Does nothing before 2.9, and while a graph is captured.
void empty_cache_of_accelerators();
// Whether the allocators of accelerators have segments that grow, in place of many (PYTORCH_ALLOC_CONF=
// expandable_segments:True). False before 2.9. 2.9 may not tell of a setting that the program makes while it runs.
bool has_expandable_segments();

// How precise LibTorch lets products of float32 be: its settings for each backend and kind of op, in the order in which
// LibTorch lists them (from 2.9 on), then at::Float32MatmulPrecision and allow_tf32 of cuDNN, which older functions set
// and which LibTorch expects to agree with the others.
using Float32Precisions = std::array<uint8_t, 11>;
Float32Precisions float32_precisions();
void set_float32_precisions(const Float32Precisions& precisions);

// How cuBLAS may add up products of half-precision numbers: four bits. Up to 2.9 there are two bools, later more
// choices.
uint32_t reduced_precision_of_cublas();
void set_reduced_precision_of_cublas(uint32_t bits);

// The address of a version counter, which tells it from others; null if it counts nothing. LibTorch has no function for
// it.
inline const void* address_of(const c10::VariableVersion& counter) {
  static_assert(sizeof(c10::VariableVersion) == sizeof(void*), "VariableVersion is no longer just a pointer");
  const void* address = nullptr;
  std::memcpy(&address, &counter, sizeof(address));
  return address;
}
// 0 for the counters of inference tensors, which count nothing.
inline uint32_t version_of(const c10::VariableVersion& counter) {
  return counter.enabled() ? counter.current_version() : 0;
}
// Whether both are the same version counter. Two that count nothing are the same.
inline bool same_counter(const c10::VariableVersion& a, const c10::VariableVersion& b) {
  return address_of(a) == address_of(b);
}

}  // namespace ac2::internal

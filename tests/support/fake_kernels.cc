// Ops of the fake accelerator: those of the CPU on copies of their arguments, but for what makes, copies and views
// memory.
#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_copy_from.h>
#include <ATen/ops/_local_scalar_dense_native.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/resize_native.h>
#include <ATen/ops/set_cpu_dispatch.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/Allocator.h>
#include <torch/library.h>

#include <cstring>
#include <mutex>
#include <vector>

#include "tests/support/fake_accelerator.h"

namespace ac2::test {

namespace {

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

thread_local int kernel_depth = 0;

// Copies inside are the kernel's own reads and writes.
struct InKernel {
  InKernel() { ++kernel_depth; }
  ~InKernel() { --kernel_depth; }
  InKernel(const InKernel&) = delete;
  InKernel& operator=(const InKernel&) = delete;
};

bool is_fake(const at::Tensor& tensor) {
  return tensor.device().is_privateuseone();
}

at::Tensor on_cpu(const at::Tensor& tensor) {
  if (!is_fake(tensor)) {
    return tensor;
  }
  at::Tensor same =
      at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(), tensor.options().device(at::kCPU));
  same._set_conj(tensor.is_conj());
  same._set_neg(tensor.is_neg());
  return same;
}

at::Tensor empty_memory_format(c10::IntArrayRef size, std::optional<c10::ScalarType> dtype,
                               std::optional<c10::Layout> layout, std::optional<c10::Device>, std::optional<bool>,
                               std::optional<c10::MemoryFormat> memory_format) {
  TORCH_CHECK(c10::layout_or_default(layout) == c10::kStrided, "The fake accelerator has strided tensors alone.");
  return at::detail::empty_generic(size, c10::GetAllocator(c10::kPrivateUse1), kKeys, c10::dtype_or_default(dtype),
                                   memory_format);
}

at::Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<c10::ScalarType> dtype,
                         std::optional<c10::Layout>, std::optional<c10::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(size, stride, c10::GetAllocator(c10::kPrivateUse1), kKeys,
                                           c10::dtype_or_default(dtype));
}

at::Tensor copy_from(const at::Tensor& source, const at::Tensor& target, bool non_blocking) {
  FakeAccelerator::State& state = FakeAccelerator::install().state();
  std::unique_lock lock(state.mutex);
  const int stream = FakeAccelerator::current_stream();
  const bool to_or_from_host = is_fake(source) != is_fake(target);
  const at::Tensor& host = is_fake(source) ? target : source;
  const bool plain = source.scalar_type() == target.scalar_type() && source.sizes() == target.sizes() &&
                     source.is_contiguous() && target.is_contiguous() && source.is_conj() == target.is_conj() &&
                     source.is_neg() == target.is_neg();
  const bool late = non_blocking && kernel_depth == 0 && to_or_from_host && plain && host.numel() > 0 &&
                    state.memory.is_pinned(host.const_data_ptr());
  if (!late) {
    state.streams.catch_up(stream);
  }
  state.streams.next_time(stream);
  state.memory.read(source.const_data_ptr(), stream);
  state.memory.write(target.data_ptr(), stream);
  if (late) {
    state.streams.spend(stream, static_cast<double>(source.nbytes()) * state.milliseconds_per_byte);
    // The caller takes care that the memory is still the target's by then.
    state.streams.queue(stream, [to = target.data_ptr(), from = source.const_data_ptr(), bytes = source.nbytes()] {
      std::memcpy(to, from, bytes);
    });
    return target;
  }
  // Without the lock: the copy tells tapes of a write, and a thread that has a tape's lock may wait for this one.
  lock.unlock();
  {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    on_cpu(target).copy_(on_cpu(source));
  }
  lock.lock();
  if (kernel_depth == 0 && to_or_from_host) {
    ++state.synchronisations;
    state.streams.synchronize(stream);
  }
  return target;
}

at::Tensor copy_from_and_resize(const at::Tensor& source, const at::Tensor& target) {
  at::native::resize_(target, source.sizes(), std::nullopt);
  return copy_from(source, target, /*non_blocking=*/false);
}

at::Scalar local_scalar_dense(const at::Tensor& tensor) {
  return at::native::_local_scalar_dense_cpu(tensor.cpu());
}

at::Tensor as_strided(const at::Tensor& self, c10::IntArrayRef size, c10::IntArrayRef stride,
                      std::optional<int64_t> offset) {
  return at::native::as_strided_tensorimpl(self, size, stride, offset);
}

at::Tensor reshape_alias(const at::Tensor& self, c10::IntArrayRef size, c10::IntArrayRef stride) {
  return at::native::_reshape_alias(self, size, stride);
}

at::Tensor view(const at::Tensor& self, c10::IntArrayRef size) {
  return at::native::view(self, size);
}

const at::Tensor& resize(const at::Tensor& self, c10::IntArrayRef size,
                         std::optional<c10::MemoryFormat> memory_format) {
  return at::native::resize_(self, size, memory_format);
}

at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& source) {
  return at::native::set_tensor_(self, source);
}

at::Tensor& set_storage(at::Tensor& self, at::Storage source) {
  return at::native::set_(self, std::move(source));
}

at::Tensor& set_storage_offset(at::Tensor& self, at::Storage source, int64_t offset, c10::IntArrayRef size,
                               c10::IntArrayRef stride) {
  return at::cpu::set_(self, std::move(source), offset, size, stride);
}

void record_stream(at::Tensor& self, at::Stream stream) {
  FakeAccelerator::State& state = FakeAccelerator::install().state();
  const std::lock_guard lock(state.mutex);
  state.memory.record_stream(self.storage().mutable_data(), static_cast<int>(stream.id()));
}

void on_the_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const InKernel in_kernel;
  {
    FakeAccelerator::State& state = FakeAccelerator::install().state();
    const std::lock_guard lock(state.mutex);
    state.streams.spend(FakeAccelerator::current_stream(), 1);
  }
  at::native::cpu_fallback(op, stack);
}

}  // namespace

void register_fake_kernels() {
  static auto* ops =
      new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  ops->impl("empty.memory_format", &empty_memory_format);
  ops->impl("empty_strided", &empty_strided);
  ops->impl("_copy_from", &copy_from);
  ops->impl("_copy_from_and_resize", &copy_from_and_resize);
  ops->impl("_local_scalar_dense", &local_scalar_dense);
  ops->impl("as_strided", &as_strided);
  ops->impl("_reshape_alias", &reshape_alias);
  ops->impl("view", &view);
  ops->impl("view_as_real", &at::native::view_as_real);
  ops->impl("view_as_complex", &at::native::view_as_complex);
  ops->impl("resize_", &resize);
  ops->impl("set_.source_Tensor", &set_tensor);
  ops->impl("set_.source_Storage", &set_storage);
  ops->impl("set_.source_Storage_storage_offset", &set_storage_offset);
  ops->impl("record_stream", &record_stream);
  for (const c10::DispatchKey lazy : {c10::DispatchKey::Conjugate, c10::DispatchKey::Negative}) {
    static auto* copies = new std::vector<torch::Library>;
    copies->emplace_back(torch::Library::IMPL, "aten", lazy, __FILE__, __LINE__);
    copies->back().impl("_copy_from", torch::CppFunction::makeFallthrough());
  }
  static auto* all = new torch::Library(torch::Library::IMPL, "_", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  all->fallback(torch::CppFunction::makeFromBoxedFunction<&on_the_cpu>());
}

}  // namespace ac2::test

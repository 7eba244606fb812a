#include "ac2/internal/libtorch/torch_compat.h"

#include <ATen/Context.h>
#include <ATen/DeviceAccelerator.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/version.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <type_traits>
#if __has_include(<c10/core/impl/FakeTensorModeTLS.h>)
#include <c10/core/impl/FakeTensorModeTLS.h>
#endif
#if __has_include(<c10/core/AllocatorConfig.h>)
#include <c10/core/AllocatorConfig.h>
#endif

// LibTorch 2.6 lacks the first of these namespaces, and versions before 2.9 lack the class.
namespace at::accelerator {}
namespace c10::CachingAllocator {
class AcceleratorAllocatorConfig;
}

namespace ac2::internal {

namespace {

// OperatorHandle::operatorDef_, for versions before 2.14, in which OperatorHandle has no lookup(). An explicit
// instantiation may name what is private; the friend function that it defines hands it out.
template <auto kMember>
struct DefinitionOfHandle {
  friend auto member_of_handle() { return kMember; }
};
auto member_of_handle();
template struct DefinitionOfHandle<&c10::OperatorHandle::operatorDef_>;

template <class Handle>
c10::KernelFunction lookup(const Handle& op, c10::DispatchKeySet keys) {
  if constexpr (requires { op.lookup(keys); }) {
    return op.lookup(keys);
  } else {
    return (op.*member_of_handle())->op.lookup(keys);
  }
}

// The functions of at::accelerator that these templates call are looked up where they are instantiated, so that they
// need not exist.
template <class Index>
std::optional<DeviceMemory> memory_of(Index device) {
  using namespace at::accelerator;  // NOLINT(google-build-using-namespace)
  if constexpr (requires { getMemoryInfo(device); }) {
    const auto [free, total] = getMemoryInfo(device);
    const auto stats = getDeviceStats(device);
    const int64_t reserved = stats.reserved_bytes.at(0).current;
    const int64_t used = stats.active_bytes.at(0).current + stats.inactive_split_bytes.at(0).current;
    return DeviceMemory{.free = static_cast<int64_t>(free),
                        .total = static_cast<int64_t>(total),
                        .reserved = reserved,
                        .idle = std::max<int64_t>(reserved - used, 0)};
  } else {
    return std::nullopt;
  }
}

template <class Index>
std::optional<int64_t> allocated_bytes_of(Index device) {
  using namespace at::accelerator;  // NOLINT(google-build-using-namespace)
  if constexpr (requires { getDeviceStats(device); }) {
    return getDeviceStats(device).allocated_bytes.at(0).current;
  } else {
    return std::nullopt;
  }
}

// Streams of newer versions say so. In older ones the generator of a GPU refuses to tell its state then.
template <class Stream>
bool is_capturing_on(const Stream& stream) {
  if constexpr (requires { stream.is_capturing(); }) {
    return stream.is_capturing();
  } else {
    if (stream.device_type() != c10::DeviceType::CUDA) {
      return false;
    }
    try {
      at::globalContext().defaultGenerator(stream.device()).get_offset();
      return false;
    } catch (const c10::Error&) {
      return true;
    }
  }
}

template <class Type>
void empty_cache_of(Type type) {
  if constexpr (requires { getDeviceAllocator(type)->emptyCache(); }) {
    getDeviceAllocator(type)->emptyCache();
  }
}

template <class Config>
bool has_expandable_segments_by() {
  if constexpr (requires { Config::use_expandable_segments(); }) {
    return Config::use_expandable_segments();
  } else {
    return false;
  }
}

#if TORCH_VERSION_MINOR >= 9
// The settings themselves. The public functions tell only what follows from them: whether a kind of op has a setting of
// its own or that of all kinds is not seen, and so could not be put back.
template <auto kSettings, auto kMatmul, auto kCudnn>
struct SettingsOfContext {
  friend auto& float32_settings(at::Context& context) { return context.*kSettings; }
  friend at::Float32MatmulPrecision& matmul_setting(at::Context& context) { return context.*kMatmul; }
  friend bool& cudnn_setting(at::Context& context) { return context.*kCudnn; }
};
auto& float32_settings(at::Context& context);
at::Float32MatmulPrecision& matmul_setting(at::Context& context);
bool& cudnn_setting(at::Context& context);
template struct SettingsOfContext<&at::Context::fp32_precision, &at::Context::float32_matmul_precision,
                                  &at::Context::allow_tf32_cudnn>;
#endif

#if TORCH_VERSION_MINOR >= 10
template <class Fn>
void for_each_float32_setting(at::Context& context, Fn&& fn) {
  for (auto& [key, precision] : float32_settings(context)) {
    fn(precision);
  }
}

uint8_t number_of(at::Float32Precision precision) {
  return static_cast<uint8_t>(precision);
}

void set_to_number(at::Float32Precision& precision, uint8_t number) {
  precision = static_cast<at::Float32Precision>(number);
}
#elif TORCH_VERSION_MINOR == 9
template <class Fn>
void for_each_float32_setting(at::Context& context, Fn&& fn) {
  for (auto& [backend, kinds] : float32_settings(context)) {
    for (auto& [kind, precision] : kinds) {
      fn(precision);
    }
  }
}

constexpr std::array<std::string_view, 4> kPrecisions = {"none", "ieee", "tf32", "bf16"};

uint8_t number_of(const std::string& precision) {
  return static_cast<uint8_t>(std::find(kPrecisions.begin(), kPrecisions.end(), precision) - kPrecisions.begin());
}

void set_to_number(std::string& precision, uint8_t number) {
  if (number < kPrecisions.size()) {
    precision = kPrecisions[number];
  }
}
#endif

// A bool up to 2.9, then an enum.
template <class Context>
uint32_t reduced_precision_of(const Context& context) {
  return static_cast<uint32_t>(context.allowFP16ReductionCuBLAS()) |
         static_cast<uint32_t>(context.allowBF16ReductionCuBLAS()) << 2U;
}

template <class Context>
void set_reduced_precision_of(Context& context, uint32_t fp16, uint32_t bf16) {
  using Option = decltype(context.allowFP16ReductionCuBLAS());
  if constexpr (std::is_same_v<Option, bool>) {
    context.setAllowFP16ReductionCuBLAS(fp16 != 0);
    context.setAllowBF16ReductionCuBLAS(bf16 != 0);
  } else {
    const auto allows = [](uint32_t option) {
      return static_cast<Option>(option) == Option::AllowReducedPrecisionWithSplitK;
    };
    const auto splits = [](uint32_t option) {
      return static_cast<Option>(option) != Option::DisallowReducedPrecisionDisallowSplitK;
    };
    context.setAllowFP16ReductionCuBLAS(allows(fp16), splits(fp16));
    context.setAllowBF16ReductionCuBLAS(allows(bf16), splits(bf16));
  }
}

}  // namespace

Float32Precisions float32_precisions() {
  at::Context& context = at::globalContext();
  Float32Precisions precisions = {};
#if TORCH_VERSION_MINOR >= 9
  size_t i = 0;
  for_each_float32_setting(context, [&](const auto& setting) { precisions.at(i++) = number_of(setting); });
  precisions[9] = static_cast<uint8_t>(matmul_setting(context));
  precisions[10] = static_cast<uint8_t>(cudnn_setting(context));
#else
  precisions[9] = static_cast<uint8_t>(context.float32MatmulPrecision());
  precisions[10] = static_cast<uint8_t>(context.allowTF32CuDNN());
#endif
  return precisions;
}

void set_float32_precisions(const Float32Precisions& precisions) {
  at::Context& context = at::globalContext();
  const auto matmul = static_cast<at::Float32MatmulPrecision>(precisions[9]);
  const bool cudnn = precisions[10] != 0;
#if TORCH_VERSION_MINOR >= 9
  size_t i = 0;
  for_each_float32_setting(context, [&](auto& setting) { set_to_number(setting, precisions.at(i++)); });
  matmul_setting(context) = matmul;
  cudnn_setting(context) = cudnn;
#else
  context.setFloat32MatmulPrecision(matmul);
  context.setAllowTF32CuDNN(cudnn);
#endif
}

uint32_t reduced_precision_of_cublas() {
  return reduced_precision_of(at::globalContext());
}

void set_reduced_precision_of_cublas(uint32_t bits) {
  set_reduced_precision_of(at::globalContext(), bits & 3U, bits >> 2U & 3U);
}

c10::KernelFunction kernel_behind_record_key(const c10::OperatorHandle& op) {
  return lookup(op, c10::DispatchKeySet(kRecordKey));
}

bool is_in_fake_mode() {
#if __has_include(<c10/core/impl/FakeTensorModeTLS.h>)
  return c10::impl::FakeTensorModeTLS::get_state() != nullptr;
#else
  return false;
#endif
}

std::optional<DeviceMemory> memory_of_accelerator(c10::DeviceIndex device) {
  return memory_of(device);
}

std::optional<int64_t> allocated_bytes_of_accelerator(c10::DeviceIndex device) {
  return allocated_bytes_of(device);
}

bool is_capturing_graph() {
  if (!c10::impl::hasDeviceGuardImpl(c10::DeviceType::CUDA)) {
    return false;
  }
  const c10::impl::DeviceGuardImplInterface& cuda = *c10::impl::getDeviceGuardImpl(c10::DeviceType::CUDA);
  return cuda.deviceCount() > 0 && is_capturing_on(cuda.getStream(cuda.getDevice()));
}

void empty_cache_of_accelerators() {
  const std::optional<c10::DeviceType> accelerator = at::getAccelerator();
  if (accelerator && !is_capturing_graph()) {
    empty_cache_of(*accelerator);
  }
}

bool has_expandable_segments() {
  return has_expandable_segments_by<c10::CachingAllocator::AcceleratorAllocatorConfig>();
}

}  // namespace ac2::internal

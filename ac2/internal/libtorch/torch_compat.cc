#include "ac2/internal/libtorch/torch_compat.h"

#include <ATen/DeviceAccelerator.h>
#include <ATen/core/dispatch/Dispatcher.h>
#if __has_include(<c10/core/impl/FakeTensorModeTLS.h>)
#include <c10/core/impl/FakeTensorModeTLS.h>
#endif

// Not there in 2.6.
namespace at::accelerator {}

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

// What these two call is looked up where they are instantiated, so that it need not exist.
template <class Index>
std::optional<RequestedBytes> requested_of(Index device) {
  using namespace at::accelerator;  // NOLINT(google-build-using-namespace)
  if constexpr (requires { getDeviceStats(device); }) {
    const auto requested = getDeviceStats(device).requested_bytes.at(0);  // 0: of all pools
    return RequestedBytes{.current = requested.current, .peak = requested.peak};
  } else {
    return std::nullopt;
  }
}

template <class Index>
void reset_peak_of(Index device) {
  using namespace at::accelerator;  // NOLINT(google-build-using-namespace)
  if constexpr (requires { resetPeakStats(device); }) {
    resetPeakStats(device);
  }
}

}  // namespace

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

std::optional<RequestedBytes> requested_of_accelerator(c10::DeviceIndex device) {
  return requested_of(device);
}

void reset_peak_of_accelerator(c10::DeviceIndex device) {
  reset_peak_of(device);
}

}  // namespace ac2::internal

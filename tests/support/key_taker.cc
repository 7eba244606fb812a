#include "tests/support/key_taker.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <atomic>
#include <utility>

namespace ac2::test {

namespace {

constexpr c10::DispatchKey kKey = c10::DispatchKey::Fake;
std::atomic<int> calls = 0;

void fallback(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  ++calls;
  const c10::impl::ExcludeDispatchKeyGuard guard(kKey);
  op.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kKey), stack);
}

TORCH_LIBRARY_IMPL(_, Fake, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

}  // namespace

int fallback_calls() {
  return calls;
}

at::Tensor tensor_with_key(const at::Tensor& tensor) {
  const at::Tensor copy = tensor.detach().clone();
  auto impl =
      c10::make_intrusive<c10::TensorImpl>(c10::Storage(copy.storage()), copy.key_set().add(kKey), copy.dtype());
  impl->set_sizes_and_strides(copy.sizes(), copy.strides());
  return at::Tensor(std::move(impl));
}

TakersMode::TakersMode() : was_on_(is_on()) {
  c10::impl::tls_set_dispatch_key_included(kKey, true);
}
TakersMode::~TakersMode() {
  c10::impl::tls_set_dispatch_key_included(kKey, was_on_);
}
bool TakersMode::is_on() {
  return c10::impl::tls_is_dispatch_key_included(kKey);
}

}  // namespace ac2::test

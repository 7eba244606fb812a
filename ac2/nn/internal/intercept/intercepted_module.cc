#include "ac2/nn/internal/intercept/intercepted_module.h"

#include <c10/util/Exception.h>

#include <array>

#include "ac2/nn/internal/intercept/coder_layers.h"

namespace ac2::internal {
namespace {

using torch::nn::AnyModule;
using torch::nn::AnyValue;
using Arguments = std::vector<AnyValue>;

// AnyModule takes arguments one by one, and an AnyValue as what it holds.
template <size_t... kIndices>
AnyValue call(AnyModule& module, Arguments& arguments, std::index_sequence<kIndices...>) {
  return module.any_forward(std::move(arguments[kIndices])...);
}

template <size_t kCount>
AnyValue call_with(AnyModule& module, Arguments& arguments) {
  return call(module, arguments, std::make_index_sequence<kCount>());
}

constexpr size_t kMostArguments = 16;

template <size_t... kCounts>
AnyValue call_any(AnyModule& module, Arguments& arguments, std::index_sequence<kCounts...>) {
  static constexpr std::array<AnyValue (*)(AnyModule&, Arguments&), sizeof...(kCounts)> kCalls = {
      &call_with<kCounts>...};
  TORCH_CHECK(arguments.size() < kCalls.size(), "The checkpointed module ", module.ptr()->name(), " was called with ",
              arguments.size(), " arguments; at most ", kMostArguments,
              " are possible. Declare it as ac2::Checkpointed<> instead.");
  return kCalls[arguments.size()](module, arguments);
}

}  // namespace

InterceptedModule& InterceptedModule::intercept(AnyModule& slot) {
  if (InterceptedModule* found = find(slot)) return *found;
  auto intercepted = std::make_shared<InterceptedModule>(slot);
  slot = AnyModule(intercepted);
  return *intercepted;
}

InterceptedModule* InterceptedModule::find(AnyModule& slot) {
  if (slot.is_empty() || slot.type_info() != typeid(InterceptedModule)) return nullptr;
  return &slot.get<InterceptedModule>();
}

void InterceptedModule::remove(AnyModule& slot) {
  if (InterceptedModule* found = find(slot)) slot = AnyModule(found->inner_);
}

std::shared_ptr<InterceptedModule> InterceptedModule::deep_copy(std::optional<torch::Device> device) const {
  auto copy = std::make_shared<InterceptedModule>(inner_.clone(device));
  copy->whole = whole;
  copy->layers = layers;
  return copy;
}

AnyValue InterceptedModule::forward(Arguments arguments) {
  if (!whole) return forward_inside(arguments);
  return whole->run(
      inner()->is_training(), [&] { return forward_inside(arguments); }, arguments);
}

AnyValue InterceptedModule::forward_inside(Arguments& arguments) {
  if (!layers.empty()) return forward_coder(*inner(), arguments, layers);
  return call_any(inner_, arguments, std::make_index_sequence<kMostArguments + 1>());
}

}  // namespace ac2::internal

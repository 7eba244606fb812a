#include "ac2/nn/checkpoint_sequential.h"

#include <c10/util/Exception.h>

#include <optional>
#include <utility>

#include "ac2/scope.h"

namespace ac2 {
namespace {

using torch::nn::AnyModule;
using torch::nn::AnyValue;

using Iterator = torch::nn::SequentialImpl::Iterator;

AnyValue run(Iterator first, Iterator last, AnyValue value) {
  for (; first != last; ++first) value = first->any_forward(std::move(value));
  return value;
}

}  // namespace

at::Tensor checkpoint_sequential(torch::nn::Sequential functions, int64_t segments, const at::Tensor& input,
                                 Policy policy) {
  TORCH_CHECK(!functions.is_empty() && !functions->is_empty(),
              "checkpoint_sequential was given a Sequential without modules. Add modules to it first.");
  const auto modules = static_cast<int64_t>(functions->size());
  TORCH_CHECK(segments >= 1 && segments <= modules, "checkpoint_sequential was asked for ", segments, " segments of ",
              modules, " modules. Ask for 1 to ", modules, ", or leave the number out.");
  TORCH_CHECK(input.defined(),
              "checkpoint_sequential was given an undefined input. Pass the tensor that the first "
              "module takes.");
  const int64_t size = modules / segments;
  AnyValue value((at::Tensor(input)));
  Iterator next = functions->begin();
  for (int64_t segment = 1; segment < segments; ++segment) {
    const PolicyScope scope(policy);
    value = run(next, next + size, std::move(value));
    next += size;
  }
  value = run(next, functions->end(), std::move(value));
  at::Tensor* output = value.try_get<at::Tensor>();
  TORCH_CHECK(output != nullptr, "checkpoint_sequential returns a tensor, but the last module returned a ",
              c10::demangle(value.type_info().name()), ". Add a module that takes the tensor out of it.");
  return std::move(*output);
}

at::Tensor checkpoint_sequential(torch::nn::Sequential functions, const at::Tensor& input, Policy policy) {
  // An empty one is refused there.
  const int64_t segments =
      functions.is_empty() || functions->is_empty() ? 1 : sqrt_segments(static_cast<int64_t>(functions->size()));
  return checkpoint_sequential(std::move(functions), segments, input, std::move(policy));
}

int64_t sqrt_segments(int64_t modules) {
  TORCH_CHECK(modules >= 1, "sqrt_segments was asked to divide ", modules, " modules. It takes 1 or more.");
  const auto held = [modules](int64_t segments) {
    const int64_t kept = segments - 1;
    return kept + modules - kept * (modules / segments);
  };
  int64_t best = 1;
  for (int64_t segments = 2; segments <= modules; ++segments) {
    const bool below_root = (segments - 1) * (segments - 1) < modules;
    if (held(segments) < held(best) || (below_root && held(segments) == held(best))) best = segments;
  }
  return best;
}

}  // namespace ac2

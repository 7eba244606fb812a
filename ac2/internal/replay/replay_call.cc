#include "ac2/internal/replay/replay_call.h"

#include <ATen/Context.h>
#include <ATen/core/List.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/macros/Macros.h>
#include <c10/util/Exception.h>

#include <optional>
#include <utility>
#include <vector>

#include "ac2/internal/libtorch/for_each_tensor.h"
#include "ac2/internal/libtorch/onednn_watch.h"
#include "ac2/internal/libtorch/op_environment.h"
#include "ac2/internal/libtorch/torch_compat.h"
#include "ac2/internal/operators/random_replay.h"

namespace ac2::internal {

namespace {

thread_local int replay_depth = 0;

struct ReplayingHere {
  ReplayingHere() { ++replay_depth; }
  ~ReplayingHere() { --replay_depth; }
  ReplayingHere(const ReplayingHere&) = delete;
  ReplayingHere& operator=(const ReplayingHere&) = delete;
};

c10::IValue list_of(std::vector<at::Tensor> elements, bool optional_elements) {
  if (!optional_elements) {
    return c10::List<at::Tensor>(std::move(elements));
  }
  c10::List<std::optional<at::Tensor>> list;
  for (at::Tensor& tensor : elements) {
    list.push_back(tensor.defined() ? std::optional<at::Tensor>(std::move(tensor)) : std::nullopt);
  }
  return list;
}

// The same bytes, as a tensor of its own.
at::Tensor requiring_grad(const at::Tensor& tensor) {
  at::Tensor alias = tensor.variable_data();
  const c10::InferenceMode where_any_tensor_may;
  alias.unsafeGetTensorImpl()->set_requires_grad(true);
  return alias;
}

torch::jit::Stack rebuild_arguments(const Node& node, ReplayTensors& inputs) {
  torch::jit::Stack stack;
  stack.reserve(node.facts->num_arguments);
  for (size_t i = 0; node.facts->is_composite && i < inputs.size(); ++i) {
    if (node.inputs[i].requires_grad != 0) {
      inputs[i] = requiring_grad(inputs[i]);
    }
  }
  size_t input = 0;
  const auto next_input_is_of = [&](uint16_t argument) {
    return input < inputs.size() && node.inputs[input].argument == argument;
  };
  auto list = node.lists().begin();
  auto constant = node.constants.begin();
  for (uint16_t i = 0; i < node.facts->num_arguments; ++i) {
    if (list != node.lists().end() && list->argument == i) {
      std::vector<at::Tensor> elements(list->size);
      while (next_input_is_of(i)) {
        elements[node.inputs[input].list_index] = std::move(inputs[input]);
        ++input;
      }
      stack.push_back(list_of(std::move(elements), list->optional_elements));
      ++list;
    } else if (next_input_is_of(i)) {
      stack.emplace_back(std::move(inputs[input++]));
    } else {
      stack.push_back(*constant++);
    }
  }
  return stack;
}

// Where the record key is above Python, a call is recorded before a dispatch mode of forward's sees it, and has the
// mode's keys. A replay goes on without them: the mode may be over, and its kernel expects a caller that has looked at
// it.
constexpr c10::DispatchKeySet kModes = c10::python_ks;

// The keys of the recorded call: ops that a kernel dispatches inside itself then go where they went in forward. In
// particular autocast is off where it was off, whatever mode backward runs in.
c10::impl::LocalDispatchKeySet dispatch_state(const Node& node, bool intercept_inner_ops) {
  c10::impl::LocalDispatchKeySet keys(node.environment->dispatch_state);
  const c10::DispatchKeySet record(kRecordKey);
  keys.included_ = intercept_inner_ops ? keys.included_ | record : keys.included_ - record;
  keys.excluded_ = intercept_inner_ops ? keys.excluded_ - record : keys.excluded_ | record;
  keys.included_ = keys.included_.remove(kHoldKey);  // a replay has references to all arguments
  if (node.keys.has_any(kModes)) {
    keys.included_ = keys.included_ - kModes;
  }
  return keys;
}

// In forward somebody has waited for what a collective returned, by an op that returned the same bytes and was not
// recorded.
C10_NOINLINE void wait_for(const torch::jit::Stack& results) {
  const std::optional<c10::OperatorHandle> wait =
      c10::Dispatcher::singleton().findSchema({"_c10d_functional::wait_tensor", ""});
  if (!wait) {
    return;
  }
  for_each_tensor(results, [&](const at::Tensor& tensor) {
    if (tensor.defined()) {
      torch::jit::Stack argument = {tensor};
      wait->callBoxed(&argument);
    }
  });
}

// Forward had other bits. Here LibTorch's way out is the error that it was for oneDNN, and the switch stays as the
// program set it.
[[noreturn]] C10_NOINLINE void computed_without_onednn(const Node& node) {
  at::globalContext().setUserEnabledMkldnn(true);
  TORCH_CHECK_WITH(
      OutOfMemoryError, false, "ac2: out of memory: replaying ", describe(node),
      ", LibTorch got no memory for oneDNN and computed without it, which gives other bits than forward's.");
}

}  // namespace

bool is_replaying() {
  return replay_depth > 0;
}

ReplayTensors call_again(const Node& node, ReplayTensors& inputs) {
  torch::jit::Stack stack = rebuild_arguments(node, inputs);
  inputs.clear();
  std::optional<ReplayedDraws> draws;
  if (node.extras && !node.extras->draws.empty()) {
    draws.emplace(*node.facts, node.extras->draws, stack.data());
  }
  // The op may return references to these arguments: a boxed kernel (make_boxed_from_unboxed_functor.h) turns several
  // returned arguments into values only after it has dropped the stack's handles on them.
  std::vector<c10::IValue> written;
  for (const uint16_t i : node.facts->written) {
    written.push_back(stack[i]);
  }
  {
    const ReplayingHere replaying;
    const InEnvironment environment(*node.environment, /*may_wait=*/node.facts->is_aten);
    const c10::impl::LocalDispatchKeySet keys = dispatch_state(node, draws && draws->redirects());
    const c10::impl::ForceDispatchKeyGuard guard(keys.included_, keys.excluded_);
    const OneDnnWatch onednn(node.facts->is_aten && node.facts->reads_precision);
    node.facts->op.redispatchBoxed(node.keys - kModes, &stack);
    if (C10_UNLIKELY(onednn.was_switched_off())) {
      computed_without_onednn(node);
    }
    if (C10_UNLIKELY(node.facts->communicates)) {
      wait_for(stack);
    }
  }
  ReplayTensors results;
  if (C10_LIKELY(stack.size() == 1 && stack[0].isTensor())) {
    results.push_back(std::move(stack[0]).toTensor());
  } else {
    for_each_tensor(c10::ArrayRef<c10::IValue>(stack), [&](const at::Tensor& tensor) { results.push_back(tensor); });
  }
  return results;
}

}  // namespace ac2::internal

#include "ac2/internal/replay_call.h"

#include <ATen/core/List.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/stack.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <optional>
#include <utility>

#include "ac2/internal/random.h"
#include "ac2/internal/replayer.h"
#include "ac2/internal/result_tensors.h"
#include "ac2/internal/torch_compat.h"

namespace ac2::internal {

namespace {

thread_local int replay_depth = 0;

struct ReplayingHere {
  ReplayingHere() { ++replay_depth; }
  ~ReplayingHere() { --replay_depth; }
  ReplayingHere(const ReplayingHere&) = delete;
  ReplayingHere& operator=(const ReplayingHere&) = delete;
};

torch::jit::Stack rebuild_arguments(const Node& node, std::vector<at::Tensor>& inputs) {
  torch::jit::Stack stack(node.arguments.begin(), node.arguments.end());
  std::vector<std::vector<at::Tensor>> lists(node.lists.size());
  for (size_t i = 0; i < node.lists.size(); ++i) {
    lists[i].resize(node.lists[i].size);
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const NodeInput& input = node.inputs[i];
    if (input.list_index < 0) {
      stack[input.argument] = std::move(inputs[i]);
      continue;
    }
    size_t list = 0;
    while (node.lists[list].argument != input.argument) {
      ++list;
    }
    lists[list][input.list_index] = std::move(inputs[i]);
  }
  for (size_t i = 0; i < node.lists.size(); ++i) {
    if (node.lists[i].optional_elements) {
      c10::List<std::optional<at::Tensor>> list;
      for (at::Tensor& tensor : lists[i]) {
        list.push_back(tensor.defined() ? std::optional<at::Tensor>(std::move(tensor)) : std::nullopt);
      }
      stack[node.lists[i].argument] = std::move(list);
    } else {
      stack[node.lists[i].argument] = c10::List<at::Tensor>(lists[i]);
    }
  }
  return stack;
}

// Those of the recorded call: what a kernel dispatches inside itself then goes where it went in forward. In particular
// autocast is off where it was off, whatever mode backward runs in.
c10::impl::LocalDispatchKeySet dispatch_state(const Node& node, bool intercept_inner_ops) {
  c10::impl::LocalDispatchKeySet keys(node.tls_keys);
  const c10::DispatchKeySet record(kRecordKey);
  keys.included_ = intercept_inner_ops ? keys.included_ | record : keys.included_ - record;
  keys.excluded_ = intercept_inner_ops ? keys.excluded_ - record : keys.excluded_ | record;
  return keys;
}

}  // namespace

bool is_replaying() {
  return replay_depth > 0;
}

std::vector<at::Tensor> call_again(const Node& node, std::vector<at::Tensor> inputs) {
  torch::jit::Stack stack = rebuild_arguments(node, inputs);
  inputs.clear();
  std::optional<ReplayedDraw> draw;
  if (node.random_state.defined()) {
    draw.emplace(*node.facts, node.random_state);
    if (node.facts->generator_argument >= 0) {
      stack[node.facts->generator_argument] = draw->generator();
    }
  }
  // What the op returns may be references to these: a boxed kernel (make_boxed_from_unboxed_functor.h) turns several
  // returned arguments into values only after it has dropped the stack's handles on them.
  std::vector<c10::IValue> written;
  for (const uint16_t i : node.facts->written) {
    written.push_back(stack[i]);
  }
  {
    const ReplayingHere replaying;
    const at::AutoGradMode grad_mode(node.grad_mode);
    const c10::impl::LocalDispatchKeySet keys = dispatch_state(node, draw && draw->redirects());
    const c10::impl::ForceDispatchKeyGuard guard(keys.included_, keys.excluded_);
    node.facts->op.redispatchBoxed(node.keys, &stack);
  }
  std::vector<at::Tensor> results;
  for_each_tensor(c10::ArrayRef<c10::IValue>(stack), [&](const at::Tensor& tensor) { results.push_back(tensor); });
  return results;
}

}  // namespace ac2::internal

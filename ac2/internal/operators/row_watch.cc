#include "ac2/internal/operators/row_watch.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/WrapDimMinimal.h>
#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <string_view>
#include <typeinfo>
#include <unordered_set>

#include "ac2/internal/libtorch/for_each_tensor.h"
#include "ac2/internal/operators/op_facts.h"

namespace ac2::internal {

namespace {

template <class Visit>
void visit_defined(const c10::IValue& value, const Visit& visit) {
  for_each_tensor_at(value, [&](const at::Tensor& tensor, int32_t) {
    if (tensor.defined()) visit(tensor);
  });
}

std::string described(const at::Tensor& tensor) {
  return c10::str("a tensor of ", tensor.sizes(), " (", tensor.scalar_type(), ")");
}

// PyTorch's own, whose formulas are known to be made of ops like those of forward.
bool is_known(const torch::autograd::Node& node) {
  const std::string_view type = typeid(node).name();
  return type.find("generated") != std::string_view::npos || type.find("CopySlices") != std::string_view::npos ||
         type.find("CopyBackwards") != std::string_view::npos;
}

}  // namespace

struct RowWatch::Call : at::ObserverContext {
  bool is_inside = false;  // of a call that was looked at
  bool has_rows = false;
  bool is_view_from_outside = false;
  RowRule rule;
};

RowWatch::RowWatch(const std::vector<at::Tensor>& slices, int64_t dim)
    : slices_(slices),
      rows_(slices[0].size(dim)),
      callbacks_(*this,
                 at::RecordFunctionCallback(&RowWatch::begin, &RowWatch::end).needsInputs(true).needsOutputs(true)) {
  for (const at::Tensor& slice : slices) {
    make(slice, at::maybe_wrap_dim(dim, slice.dim()));
  }
}

void RowWatch::make(const at::Tensor& tensor, int64_t dim) {
  made_.insert_or_assign(tensor.unsafeGetTensorImpl(), Made{WeakTensor(tensor.getIntrusivePtr()), dim});
}

void RowWatch::refuse(const std::string& why) {
  if (refusal_.empty()) {
    refusal_ = why;
  }
}

// What is thrown here would be lost.
std::unique_ptr<at::ObserverContext> RowWatch::begin(const at::RecordFunction& call) {
  auto judged = std::make_unique<Call>();
  RowWatch* const watch = OpCallbacks<RowWatch>::innermost();
  if (watch == nullptr) {
    return judged;
  }
  if (watch->inside_ > 0) {
    judged->is_inside = true;
    ++watch->inside_;
    return judged;
  }
  try {
    watch->note_call(call, *judged);
  } catch (const std::exception& error) {
    watch->refuse(c10::str(call.name(), " was called in a way that is not understood: ", error.what()));
  }
  return judged;
}

void RowWatch::end(const at::RecordFunction& call, at::ObserverContext* context) {
  RowWatch* const watch = OpCallbacks<RowWatch>::innermost();
  if (watch == nullptr || context == nullptr) {
    return;
  }
  const Call& judged = *static_cast<Call*>(context);
  if (judged.is_inside) {
    --watch->inside_;
    if (watch->inside_ == 0) watch->note_results(call, judged);
  }
}

void RowWatch::note_call(const at::RecordFunction& call, Call& judged) {
  const auto name = call.operator_name();
  const auto op = name ? c10::Dispatcher::singleton().findOp(*name) : std::nullopt;
  // Of an op that is made of others, the others are looked at.
  if (!op || !op->hasSchema() || op_facts(*op).is_composite) {
    return;
  }
  judged.is_inside = true;
  inside_ = 1;
  const OpFacts& facts = op_facts(*op);
  const c10::ArrayRef<const c10::IValue> inputs = call.inputs();
  std::vector<RowArgument> tensors;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const bool is_written = std::find(facts.written.begin(), facts.written.end(), i) != facts.written.end();
    visit_defined(inputs[i], [&](const at::Tensor& tensor) {
      const auto found = made_.find(tensor.unsafeGetTensorImpl());
      tensors.push_back({tensor, found == made_.end() ? kNoRows : found->second.dim});
      if (found != made_.end()) {
        judged.has_rows |= found->second.dim != kNoRows;
        return;
      }
      judged.is_view_from_outside |= facts.is_view;
      if (is_written) {
        refuse(c10::str(facts.name, " writes to ", described(tensor), " that the function has not made."));
      } else if (tensor.requires_grad()) {
        refuse(c10::str(facts.name, " takes ", described(tensor),
                        " that requires a gradient and is not cut: its gradient is a sum over chunks."));
      }
    });
  }
  if (judged.has_rows) {
    judged.rule = row_rule(*op, inputs, tensors);
    if (!judged.rule.refusal.empty()) {
      refuse(c10::str(facts.name, " ", judged.rule.refusal, "."));
    }
  } else if (facts.draws) {
    refuse(c10::str(facts.name, " draws random numbers, for each chunk anew."));
  }
}

void RowWatch::note_results(const at::RecordFunction& call, const Call& judged) {
  if (judged.is_view_from_outside && !judged.has_rows) {
    return;
  }
  for (const c10::IValue& output : call.outputs()) {
    visit_defined(output, [&](const at::Tensor& tensor) {
      make(tensor, judged.has_rows ? judged.rule.dim_of(tensor, rows_) : kNoRows);
    });
  }
}

void RowWatch::check(const std::vector<at::Tensor>& results, int64_t dim) const {
  constexpr const char* kAdvice =
      " Without exact, in_chunks runs it, and results may differ from those of one call by the order of additions, or "
      "in their last bits.";
  TORCH_CHECK(refusal_.empty(), "in_chunks with exact: ", refusal_, kAdvice);
  for (size_t i = 0; i < results.size(); ++i) {
    const auto found = made_.find(results[i].unsafeGetTensorImpl());
    TORCH_CHECK(found != made_.end() && found->second.dim == at::maybe_wrap_dim(dim, results[i].dim()),
                "in_chunks with exact: result ", i, " of the function, ", described(results[i]),
                ", is not known to have the rows along dimension ", dim, " that is cut.", kAdvice);
  }
  check_graph(results);
}

void RowWatch::check_graph(const std::vector<at::Tensor>& results) const {
  std::unordered_set<const torch::autograd::Node*> seen;
  std::vector<const torch::autograd::Node*> open;
  const auto reach = [&](const torch::autograd::Node* node) {
    if (node != nullptr && seen.insert(node).second) open.push_back(node);
  };
  for (const at::Tensor& slice : slices_) {
    seen.insert(slice.grad_fn().get());
  }
  for (const at::Tensor& result : results) {
    reach(result.grad_fn().get());
  }
  while (!open.empty()) {
    const torch::autograd::Node& node = *open.back();
    open.pop_back();
    TORCH_CHECK(is_known(node), "in_chunks with exact: the backward of the chunk goes through ", node.name(),
                ", of which is not known that it computes each row by itself.");
    for (const torch::autograd::Edge& edge : node.next_edges()) {
      reach(edge.function.get());
    }
  }
}

}  // namespace ac2::internal

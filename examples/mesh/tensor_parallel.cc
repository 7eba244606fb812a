#include "examples/mesh/tensor_parallel.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

namespace gpt {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr char kGroup[] = "group";
constexpr char kSequence[] = "sequence";

void keep_group(AutogradContext* context, const TensorGroup& group) {
  context->saved_data[kGroup] = reinterpret_cast<int64_t>(group.communicator);
  context->saved_data[kSequence] = group.sequence;
}

TensorGroup kept_group(AutogradContext* context) {
  return {.communicator = reinterpret_cast<Communicator*>(context->saved_data[kGroup].toInt()),
          .sequence = context->saved_data[kSequence].toBool()};
}

struct Enter : torch::autograd::Function<Enter> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const TensorGroup& group) {
    keep_group(context, group);
    return group.sequence ? group.communicator->all_gather(x) : x;
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const TensorGroup group = kept_group(context);
    return {group.sequence ? group.communicator->reduce_scatter(gradients[0])
                           : group.communicator->all_reduce(gradients[0]),
            {}};
  }
};

struct Leave : torch::autograd::Function<Leave> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const TensorGroup& group) {
    keep_group(context, group);
    return group.sequence ? group.communicator->reduce_scatter(x) : group.communicator->all_reduce(x);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const TensorGroup group = kept_group(context);
    return {group.sequence ? group.communicator->all_gather(gradients[0]) : gradients[0], {}};
  }
};

// Which of the words are this process's, and their places in its part: 0 for those of others.
struct OwnWords {
  at::Tensor are_own, places;

  OwnWords(const at::Tensor& words, int64_t count, int64_t rank) {
    const at::Tensor shifted = words - rank * count;
    are_own = shifted.ge(0).bitwise_and(shifted.lt(count));
    places = shifted.clamp(0, count - 1);
  }
};

struct CrossEntropy : torch::autograd::Function<CrossEntropy> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& logits, const at::Tensor& targets,
                            const TensorGroup& group) {
    Communicator& ranks = *group.communicator;
    const at::Tensor wide = logits.to(at::kFloat);
    const at::Tensor shifted = wide - ranks.all_reduce(wide.amax(-1), "max").unsqueeze(-1);
    const OwnWords own(targets, logits.size(-1), ranks.rank());
    const at::Tensor place = own.places.unsqueeze(-1);
    const at::Tensor is_own = own.are_own.to(at::kFloat);
    const at::Tensor target_logit = ranks.all_reduce(shifted.gather(-1, place).squeeze(-1) * is_own);
    const at::Tensor powers = shifted.exp();
    const at::Tensor sums = ranks.all_reduce(powers.sum(-1));
    context->save_for_backward({powers / sums.unsqueeze(-1), place, is_own});
    context->saved_data["dtype"] = logits.scalar_type();
    return (sums.log() - target_logit).mean();
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor ones = saved[2].unsqueeze(-1);
    const at::Tensor gradient = saved[0].scatter_add(-1, saved[1], ones.neg());
    const auto tokens = static_cast<double>(ones.numel());
    return {(gradient * (gradients[0] / tokens)).to(context->saved_data["dtype"].toScalarType()), {}, {}};
  }
};

}  // namespace

at::Tensor enter_parallel(const at::Tensor& x, const TensorGroup& group) {
  return group.size() == 1 ? x : Enter::apply(x, group);
}

at::Tensor leave_parallel(const at::Tensor& x, const TensorGroup& group) {
  return group.size() == 1 ? x : Leave::apply(x, group);
}

at::Tensor parallel_embedding(const at::Tensor& table, const at::Tensor& tokens, const TensorGroup& group) {
  if (group.size() == 1) return at::embedding(table, tokens);
  const OwnWords own(tokens, table.size(0), group.rank());
  const at::Tensor rows = at::embedding(table, own.places) * own.are_own.to(table.scalar_type()).unsqueeze(-1);
  return leave_parallel(rows, group);
}

at::Tensor parallel_cross_entropy(const at::Tensor& logits, const at::Tensor& targets, const TensorGroup& group) {
  return CrossEntropy::apply(logits, targets, group);
}

}  // namespace gpt

#include "ac2/linear_cross_entropy.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <bit>
#include <limits>

#include "ac2/internal/libtorch/sums_in_float.h"
#include "ac2/scope.h"

namespace ac2 {

namespace {

using internal::type_of_sums;
using Options = LinearCrossEntropyOptions;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

void check(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& target, const Options& options) {
  TORCH_CHECK(input.defined() && weight.defined() && target.defined(),
              "linear_cross_entropy was given an undefined input, weight or target.");
  TORCH_CHECK(input.is_floating_point() && input.dim() > 0, "linear_cross_entropy: input is of ", input.scalar_type(),
              " and ", input.sizes(), "; expected floating-point numbers [..., features].");
  TORCH_CHECK(weight.dim() == 2 && weight.size(1) == input.size(-1), "linear_cross_entropy: weight is ", weight.sizes(),
              "; expected [classes, ", input.size(-1), "], for an input of ", input.sizes(), ".");
  TORCH_CHECK(target.scalar_type() == at::kLong, "linear_cross_entropy: target is of ", target.scalar_type(),
              "; expected class indices, of Long. For probabilities use in_chunks() around linear() and "
              "cross_entropy_loss().");
  TORCH_CHECK(target.sizes() == input.sizes().slice(0, input.dim() - 1), "linear_cross_entropy: target is ",
              target.sizes(), "; expected ", input.sizes().slice(0, input.dim() - 1), ", for an input of ",
              input.sizes(), ".");
  const auto check_by_class = [&](const at::Tensor& tensor, const char* name) {
    TORCH_CHECK(!tensor.defined() || tensor.sizes() == weight.sizes().slice(0, 1), "linear_cross_entropy: ", name,
                " is ", tensor.sizes(), "; expected ", weight.sizes().slice(0, 1), ", one number for each class.");
  };
  check_by_class(options.bias, "bias");
  check_by_class(options.class_weights, "class_weights");
  TORCH_CHECK(!options.class_weights.defined() || !options.class_weights.requires_grad(),
              "linear_cross_entropy: class_weights requires a gradient, and none goes there. Give its detach().");
  const auto check_no_tangent = [](const at::Tensor& tensor, const char* name) {
    TORCH_CHECK(
        !tensor.defined() || !tensor._fw_grad(/*level=*/0).defined(), "linear_cross_entropy: ", name,
        " has a tangent, and linear_cross_entropy has no forward-mode derivative. In place of it, call in_chunks() "
        "with a function of linear() and cross_entropy_loss().");
  };
  check_no_tangent(input, "input");
  check_no_tangent(weight, "weight");
  check_no_tangent(options.bias, "bias");
  TORCH_CHECK(!options.class_weights.defined() || options.class_weights.is_floating_point(),
              "linear_cross_entropy: class_weights are of ", options.class_weights.scalar_type(),
              "; expected floating-point numbers of the logits' type.");
  TORCH_CHECK(options.reduction == "mean" || options.reduction == "sum", "linear_cross_entropy: reduction is \"",
              options.reduction, "\"; expected \"mean\" or \"sum\".");
  TORCH_CHECK(options.label_smoothing >= 0 && options.label_smoothing <= 1, "linear_cross_entropy: label_smoothing is ",
              options.label_smoothing, "; expected a number from 0 to 1.");
  TORCH_CHECK(!options.chunks || *options.chunks > 0, "linear_cross_entropy: chunks must be a positive number, but is ",
              *options.chunks, ".");
}

// Divisors of the sum of the losses and of its gradients. Where no row counts, the loss is no number, and the gradients
// are 0, as PyTorch's.
struct Divisors {
  at::Tensor of_loss;
  at::Tensor of_gradients;
};

Divisors divisors(const at::Tensor& target, const Options& options) {
  const at::Tensor counts = target.ne(options.ignore_index);
  const at::Tensor total =
      options.class_weights.defined()
          ? at::where(counts, options.class_weights.index_select(0, at::where(counts, target, 0)), 0).sum()
          : counts.sum().to(at::kFloat);
  return {total, total.masked_fill(counts.any().logical_not(), std::numeric_limits<double>::infinity())};
}

// A sum over chunks, of the sizes of `like`.
class Sum {
 public:
  explicit Sum(const at::Tensor& like)
      : sum_(at::zeros(like.sizes(), like.options().dtype(type_of_sums(like.scalar_type())))) {}
  void add(const at::Tensor& part) { sum_.add_(part); }
  // The product of two matrices. Without a result of its own where no types have to be changed.
  void add_product(const at::Tensor& left, const at::Tensor& right) {
    if (left.scalar_type() == sum_.scalar_type() && right.scalar_type() == sum_.scalar_type()) {
      sum_.addmm_(left, right);
    } else if (left.scalar_type() == at::kHalf) {
      // Sums within the product must fit into half precision. Powers of two change no digits.
      const auto parts = static_cast<double>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(right.size(0), 1))));
      sum_.add_(left.mul(1 / parts).mm(right), parts);
    } else {
      sum_.add_(left.mm(right));
    }
  }
  // In the type of sums: before it is divided, it may not fit into that of `like`.
  at::Tensor take() const { return sum_; }

 private:
  at::Tensor sum_;
};

// Autocast keeps the casts of weights for the rest of its block. Those of this forward have no graph, and LibTorch
// 2.7 gives them to other ops of the program, whose weights then get no gradient.
class NoCastsKept {
 public:
  NoCastsKept() : were_kept_(at::autocast::is_autocast_cache_enabled()) {
    at::autocast::set_autocast_cache_enabled(false);
  }
  ~NoCastsKept() { at::autocast::set_autocast_cache_enabled(were_kept_); }
  NoCastsKept(const NoCastsKept&) = delete;
  NoCastsKept& operator=(const NoCastsKept&) = delete;

 private:
  const bool were_kept_;
};

// Once for all chunks.
at::Tensor cast_as_autocast_does(const at::Tensor& weight) {
  const at::DeviceType device = weight.device().type();
  const bool is_cast = at::autocast::is_autocast_available(device) && at::autocast::is_autocast_enabled(device) &&
                       weight.scalar_type() != at::kDouble;
  return is_cast ? weight.to(at::autocast::get_autocast_dtype(device)) : weight;
}

// The sum of the losses, and the gradients of that sum; undefined for what wants none.
class Computation {
 public:
  Computation(const at::Tensor& input, const at::Tensor& weight, const Options& options, bool input_wants,
              bool weight_wants, bool bias_wants)
      : weight_(cast_as_autocast_does(weight)), options_(options) {
    if (input_wants) input_gradient_ = at::empty_like(input);
    if (weight_wants) weight_gradient_.emplace(weight);
    if (bias_wants) bias_gradient_.emplace(options.bias);
  }

  void add(const at::Tensor& input, const at::Tensor& target, int64_t first_row) {
    at::Tensor logits = at::linear(input, weight_, options_.bias);
    const bool wants = input_gradient_.defined() || weight_gradient_ || bias_gradient_;
    logits.requires_grad_(wants);
    at::Tensor loss;
    {
      const at::AutoGradMode mode(wants);
      const at::Tensor of_rows = at::cross_entropy_loss(logits, target, options_.class_weights, at::Reduction::None,
                                                        options_.ignore_index, options_.label_smoothing);
      loss_type_ = of_rows.scalar_type();
      loss = of_rows.sum(type_of_sums(loss_type_));
    }
    loss_ = loss_.defined() ? loss_ + loss.detach() : loss.detach();
    if (wants) {
      const at::Tensor gradient = torch::autograd::grad({loss}, {logits})[0];
      loss.reset();
      logits.reset();  // the products below need room
      add_gradients(gradient, input, first_row);
    }
  }

  // Divided by `total`, if that is defined.
  at::Tensor take_loss(const at::Tensor& total) const {
    return (total.defined() ? loss_ / total : loss_).to(loss_type_);
  }
  variable_list take_gradients() {
    return {input_gradient_, weight_gradient_ ? weight_gradient_->take() : at::Tensor(),
            bias_gradient_ ? bias_gradient_->take() : at::Tensor()};
  }

 private:
  void add_gradients(const at::Tensor& gradient, const at::Tensor& input, int64_t first_row) {
    if (input_gradient_.defined()) {
      input_gradient_.narrow(0, first_row, input.size(0)).copy_(gradient.mm(weight_));
    }
    if (weight_gradient_) {
      weight_gradient_->add_product(gradient.t(), input);
    }
    if (bias_gradient_) {
      bias_gradient_->add(gradient.sum(0, /*keepdim=*/false, type_of_sums(gradient.scalar_type())));
    }
  }

  const at::Tensor weight_;
  const Options& options_;
  at::Tensor loss_;
  at::ScalarType loss_type_ = at::kFloat;
  at::Tensor input_gradient_;
  std::optional<Sum> weight_gradient_;
  std::optional<Sum> bias_gradient_;
};

// In a chunk of which nobody has said how large it is: ops on fewer rows take as long.
constexpr int64_t kLeastRows = 64;

constexpr const char* kWeightType = "weight_type";
constexpr const char* kBiasType = "bias_type";

class LinearCrossEntropy : public torch::autograd::Function<LinearCrossEntropy> {
 public:
  // `input` is a matrix and `target` a vector. The bias is an argument of its own, because it has a gradient.
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias, const at::Tensor& target, const Options& options,
                            bool wants_gradients) {
    // A chunk's graph is gone before the next chunk, so that a region has nothing to do for it.
    const DisableCheckpointing unrecorded;
    const NoCastsKept no_casts_kept;
    const auto wants = [&](const at::Tensor& tensor) { return wants_gradients && tensor.requires_grad(); };
    Computation computation(input, weight, options, wants(input), wants(weight), bias && wants(*bias));
    const int64_t rows = input.size(0);
    const int64_t in_chunk =
        options.chunks ? (rows + *options.chunks - 1) / *options.chunks : std::max(input.size(1), kLeastRows);
    int64_t row = 0;
    do {
      const int64_t count = std::min(std::max<int64_t>(in_chunk, 1), rows - row);
      computation.add(input.narrow(0, row, count), target.narrow(0, row, count), row);
      row += count;
    } while (row < rows);

    const Divisors by = options.reduction == "mean" ? divisors(target, options) : Divisors();
    variable_list saved = computation.take_gradients();
    saved.push_back(by.of_gradients);
    context->save_for_backward(saved);
    context->saved_data[kWeightType] = static_cast<int64_t>(weight.scalar_type());
    context->saved_data[kBiasType] = static_cast<int64_t>(bias ? bias->scalar_type() : weight.scalar_type());
    return computation.take_loss(by.of_loss);
  }

  static variable_list backward(AutogradContext* context, const variable_list& of_loss) {
    TORCH_CHECK(!at::GradMode::is_enabled(),
                "linear_cross_entropy has made its gradients in forward, and has no second derivative. In place of it, "
                "call in_chunks() with a function of linear() and cross_entropy_loss().");
    const variable_list saved = context->get_saved_variables();
    const at::Tensor scale = saved[3].defined() ? of_loss[0] / saved[3] : of_loss[0];
    const auto scaled = [&](const at::Tensor& gradient) {
      return gradient.defined() ? gradient * scale : at::Tensor();
    };
    const auto scaled_to = [&](const at::Tensor& gradient, const char* type) {
      return gradient.defined() ? scaled(gradient).to(static_cast<at::ScalarType>(context->saved_data[type].toInt()))
                                : at::Tensor();
    };
    return {scaled(saved[0]), scaled_to(saved[1], kWeightType), scaled_to(saved[2], kBiasType), {}, {}, {}};
  }
};

}  // namespace

at::Tensor linear_cross_entropy(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& target,
                                const LinearCrossEntropyOptions& options) {
  check(input, weight, target, options);
  const auto bias = options.bias.defined() ? std::optional<at::Tensor>(options.bias) : std::nullopt;
  const at::Tensor rows = input.dim() == 1 ? input.unsqueeze(0) : input.flatten(0, -2);
  return LinearCrossEntropy::apply(rows, weight, bias, target.reshape({-1}), options, at::GradMode::is_enabled());
}

}  // namespace ac2

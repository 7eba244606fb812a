#include "examples/plan_gpt3.h"

#include <torch/torch.h>

#include "examples/gpt_model.h"
#include "examples/table.h"

namespace gpt {

namespace {

struct Layer {
  at::Tensor norm1, bias1, qkv, qkv_bias, projection, projection_bias;
  at::Tensor norm2, bias2, expand, expand_bias, contract, contract_bias;

  explicit Layer(const LargeGptOptions& options) {
    const int64_t dim = options.dim;
    const auto parameter = [&](at::IntArrayRef sizes) {
      return at::empty(sizes, at::TensorOptions().device(at::kMeta).dtype(options.dtype)).requires_grad_();
    };
    for (at::Tensor* vector : {&norm1, &bias1, &projection_bias, &norm2, &bias2, &contract_bias}) {
      *vector = parameter({dim});
    }
    qkv = parameter({3 * dim, dim});
    qkv_bias = parameter({3 * dim});
    projection = parameter({dim, dim});
    expand = parameter({4 * dim, dim});
    expand_bias = parameter({4 * dim});
    contract = parameter({dim, 4 * dim});
  }

  int64_t parameters() const {
    int64_t count = 0;
    for (const at::Tensor& t : {norm1, bias1, qkv, qkv_bias, projection, projection_bias, norm2, bias2, expand,
                                expand_bias, contract, contract_bias}) {
      count += t.numel();
    }
    return count;
  }
};

// As BlockImpl of gpt_model.h, whose modules cannot be made without memory.
at::Tensor forward(const Layer& layer, const LargeGptOptions& options, const at::Tensor& x) {
  const int64_t batch = x.size(0), time = x.size(1), dim = x.size(2), heads = options.heads;
  const auto dropout = [&](const at::Tensor& t) {
    return options.dropout > 0 ? at::dropout(t, options.dropout, /*train=*/true) : t;
  };
  const auto qkv = at::linear(at::layer_norm(x, {dim}, layer.norm1, layer.bias1), layer.qkv, layer.qkv_bias)
                       .view({batch, time, 3, heads, dim / heads})
                       .permute({2, 0, 3, 1, 4})
                       .unbind(0);
  // On the meta device scaled_dot_product_attention() would build [time, time] matrices, which no device does.
  const at::Tensor mixed = std::get<0>(
      at::_scaled_dot_product_flash_attention_for_cpu(qkv[0], qkv[1], qkv[2], /*dropout_p=*/0.0, /*is_causal=*/true));
  const at::Tensor y = x + dropout(at::linear(mixed.transpose(1, 2).reshape({batch, time, dim}), layer.projection,
                                              layer.projection_bias));
  const at::Tensor hidden =
      at::gelu(at::linear(at::layer_norm(y, {dim}, layer.norm2, layer.bias2), layer.expand, layer.expand_bias));
  return y + dropout(at::linear(hidden, layer.contract, layer.contract_bias));
}

std::string share(double part, double whole) {
  return fixed(100 * part / whole, 1) + " %";
}

}  // namespace

LayerPlans plan_layers(const LargeGptOptions& options) {
  check_options({.context = options.context,
                 .layers = options.layers,
                 .dim = options.dim,
                 .heads = options.heads,
                 .dropout = options.dropout});
  TORCH_CHECK(options.batch > 0, "batch is ", options.batch, "; it must be at least 1.");
  LayerPlans result{.options = options, .parameters = 0, .plans = {}};
  std::vector<Layer> layers;
  for (int64_t i = 0; i < options.layers; ++i) {
    layers.emplace_back(options);
    result.parameters += layers.back().parameters();
  }
  at::Tensor x;
  ac2::StepPlanner planner([&] {
    x = at::empty({options.batch, options.context, options.dim},
                  at::TensorOptions().device(at::kMeta).dtype(options.dtype))
            .requires_grad_();
    for (const Layer& layer : layers) x = forward(layer, options, x);
    x.backward(at::ones(x.sizes(), x.options().requires_grad(false)));
  });
  x.reset();

  result.plans.push_back({"no recomputation", 0, planner.summarize([](const auto&) { return true; })});
  int64_t sums = 0;
  // Each layer adds twice: what it attends to, and then what its hidden layer makes of that.
  const auto ends_a_layer = [&](const ac2::StepPlanner::Op& op) {
    return op.name == "aten::add.Tensor" && ++sums % 2 == 0;
  };
  result.plans.push_back({"each layer from its input", 0, planner.summarize(ends_a_layer)});
  const ac2::PlanSummary smallest = planner.smallest().summary();
  std::vector<int64_t> budgets = options.budgets;
  if (budgets.empty()) {
    const int64_t all = result.plans[0].summary.peak_bytes;
    for (const int64_t budget : {3 * (all / 4), all / 2, all / 4, all / 8}) {
      if (budget > smallest.peak_bytes) budgets.push_back(budget);
    }
  }
  for (const int64_t budget : budgets) {
    result.plans.push_back({"plan", budget, planner.plan(budget).summary()});
  }
  result.plans.push_back({"the smallest plan", 0, smallest});
  return result;
}

void print_plans(std::ostream& out, const LayerPlans& plans) {
  const LargeGptOptions& options = plans.options;
  out << "GPT of " << options.layers << " layers, " << options.dim << " channels, " << options.heads << " heads, "
      << options.context << " tokens, batch " << options.batch << ", " << c10::toString(options.dtype) << ": "
      << fixed(static_cast<double>(plans.parameters) / 1e9, 2) << " billion parameters in its layers.\n\n";
  std::vector<std::vector<std::string>> rows;
  for (const LayerPlan& plan : plans.plans) {
    const ac2::PlanSummary& summary = plan.summary;
    rows.push_back({plan.budget > 0 ? "plan for " + mebibytes(plan.budget) : plan.name,
                    mebibytes(summary.forward_bytes / options.layers), mebibytes(summary.forward_bytes),
                    mebibytes(summary.peak_bytes), share(summary.replay_cost, summary.forward_cost),
                    fixed(1 + summary.replay_cost / (3 * summary.forward_cost), 3)});
  }
  print_table(
      out, {"variant", "held per layer", "held for backward", "most held", "replayed of forward", "step / none"}, rows);
  out << "\nStep time counts a backward as two forwards. Costs come from shapes, for a machine that computes 5\n"
         "multiplications or additions in the time of moving a byte.\n";
}

}  // namespace gpt

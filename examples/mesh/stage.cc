#include "examples/mesh/stage.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <cmath>
#include <limits>
#include <optional>

#include "examples/mesh/rms_norm.h"

namespace gpt {

namespace {

constexpr double kNormEpsilon = 1e-5;
constexpr double kRotaryBase = 500000;

at::Tensor product(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias = {}) {
  return bias.defined() ? at::linear(x, weight, bias) : at::linear(x, weight);
}

at::Tensor plus(const at::Tensor& x, const at::Tensor& bias) {
  return bias.defined() ? x + bias : x;
}

// [time, batch, channels] -> [batch, heads, time, channels of a head], a view.
at::Tensor heads_first(const at::Tensor& heads) {
  return heads.permute({1, 2, 0, 3});
}

// From queries, keys and values [batch, heads, time, channels of a head] to [time, batch, channels]. Without a mask
// each query sees the keys up to its own.
at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& mask) {
  // On the meta device scaled_dot_product_attention() would build [time, time] matrices, which no device does.
  const at::Tensor mixed = std::get<0>(
      at::_scaled_dot_product_flash_attention_for_cpu(q, k, v, /*dropout_p=*/0.0, /*is_causal=*/!mask.defined(),
                                                      mask.defined() ? std::optional<at::Tensor>(mask) : std::nullopt));
  return mixed.permute({2, 0, 1, 3}).reshape({q.size(2), q.size(0), q.size(1) * q.size(3)});
}

// 0 where the query `first` + row sees the key of the column, else minus infinity.
at::Tensor causal_mask(int64_t time, int64_t first, int64_t keys, const at::TensorOptions& options) {
  return at::full({time, keys}, -std::numeric_limits<double>::infinity(), options).triu_(first + 1);
}

// Each key for as many queries as share it; without a copy where there is one key.
at::Tensor shared(const at::Tensor& keys, int64_t heads) {
  const int64_t batch = keys.size(0), count = keys.size(1), time = keys.size(2), channels = keys.size(3);
  if (count == heads) return keys;
  return keys.unsqueeze(2)
      .expand({batch, count, heads / count, time, channels})
      .reshape({batch, heads, time, channels});
}

}  // namespace

// The parameters of one unit. Each is drawn whole, from a seed of its own, and its part is taken.
class Stage::Maker {
 public:
  Maker(Stage& stage, int64_t unit) : stage_(stage), seed_(stage.options_.seed + 100 * unit) {
    stage_.units_.emplace_back();
  }
  // A weight [rows, columns], split by rows (0), by columns (1) or not at all (-1).
  at::Tensor weight(int64_t rows, int64_t columns, int64_t split) {
    return add({rows, columns}, split, [&](const at::Tensor& whole, const at::Generator& generator) {
      whole.normal_(0, 1 / std::sqrt(static_cast<double>(columns)), generator);
    });
  }
  at::Tensor vector(int64_t size, double value, int64_t split = -1) {
    return add({size}, split, [&](const at::Tensor& whole, const at::Generator&) { whole.fill_(value); });
  }

 private:
  template <class Fill>
  at::Tensor add(std::vector<int64_t> sizes, int64_t split, const Fill& fill) {
    const TensorGroup& group = stage_.tensor_;
    ++seed_;
    at::Tensor parameter;
    std::vector<int64_t> part = sizes;
    if (split >= 0) part[split] /= group.size();
    if (stage_.options_.device.is_meta()) {
      parameter = at::empty(part, stage_.hidden_options());
    } else {
      const at::Tensor whole = at::empty(sizes, stage_.hidden_options());
      fill(whole, at::detail::createCPUGenerator(seed_));
      parameter = split >= 0 ? whole.narrow(split, group.rank() * part[split], part[split]).clone() : whole;
    }
    parameter = parameter.contiguous().requires_grad_();
    stage_.units_.back().push_back(parameter);
    if (split < 0) stage_.replicated_.push_back(parameter);
    return parameter;
  }

  Stage& stage_;
  uint64_t seed_;
};

Stage::Stage(const LargeModel& model, MeshGroups& groups, const StageOptions& options)
    : model_((check_model(model, groups.mesh.tensor, groups.mesh.context), model)),
      groups_(groups),
      options_(options),
      tensor_{.communicator = &groups.tensor, .sequence = options.sequence && groups.mesh.tensor > 1},
      context_{.communicator = &groups.context, .sequence = true},
      range_(layers_of_stage(model.layers, groups.mesh.pipeline, groups.place.pipeline)) {
  if (is_first()) {
    Maker make(*this, 0);
    words_ = make.weight(model_.vocabulary, model_.dim, 0);
    if (!model_.llama) positions_ = make.weight(model_.context, model_.dim, -1);
  }
  for (int64_t i = 0; i < range_.count; ++i) make_layer(range_.first + i);
  if (is_last()) {
    Maker make(*this, model_.layers + 1);
    norm_ = make.vector(model_.dim, 1);
    if (!model_.llama) bias_ = make.vector(model_.dim, 0);
    head_ = make.weight(model_.vocabulary, model_.dim, 0);
  }
  if (model_.llama) {
    const int64_t channels = model_.dim / model_.heads;
    const auto wide = at::TensorOptions().device(options_.device).dtype(at::kFloat);
    const at::Tensor powers =
        at::arange(0, channels, 2, wide) * (-std::log(kRotaryBase) / static_cast<double>(channels));
    const at::Tensor angles =
        at::arange(first_token(), first_token() + own_tokens(), wide).view({-1, 1, 1, 1}) * powers.exp();
    cosines_ = angles.cos().to(model_.dtype);
    sines_ = angles.sin().to(model_.dtype);
  }
  if (groups.mesh.context > 1) mask_ = causal_mask(own_tokens(), first_token(), model_.context, hidden_options());
}

void Stage::make_layer(int64_t index) {
  Maker make(*this, index + 1);
  Layer& layer = layers_.emplace_back();
  const int64_t dim = model_.dim, hidden = model_.hidden, keys = dim / model_.heads * model_.key_heads;
  layer.norm1 = make.vector(dim, 1);
  layer.norm2 = make.vector(dim, 1);
  layer.projection = make.weight(dim, dim, 1);
  layer.expand = make.weight(hidden, dim, 0);
  layer.contract = make.weight(dim, hidden, 1);
  if (model_.llama) {
    layer.queries = make.weight(dim, dim, 0);
    layer.keys = make.weight(keys, dim, 0);
    layer.values = make.weight(keys, dim, 0);
    layer.gate = make.weight(hidden, dim, 0);
  } else {
    layer.qkv = make.weight(3 * dim, dim, 0);
    layer.qkv_bias = make.vector(3 * dim, 0, 0);
    layer.expand_bias = make.vector(hidden, 0, 0);
    for (at::Tensor* bias : {&layer.bias1, &layer.bias2, &layer.projection_bias, &layer.contract_bias}) {
      *bias = make.vector(dim, 0);
    }
  }
}

std::vector<int64_t> Stage::hidden_sizes(int64_t batch) const {
  return {own_tokens() / (tensor_.sequence ? tensor_.size() : 1), batch, model_.dim};
}

std::vector<at::Tensor> Stage::seen_in_parts() const {
  return tensor_.sequence ? replicated_ : std::vector<at::Tensor>();
}

at::Tensor Stage::norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) const {
  return model_.llama ? rms_norm(x, weight, kNormEpsilon) : at::layer_norm(x, {model_.dim}, weight, bias, kNormEpsilon);
}

at::Tensor Stage::rotated(const at::Tensor& heads) const {
  const auto halves = heads.chunk(2, -1);
  return at::cat({halves[0] * cosines_ - halves[1] * sines_, halves[1] * cosines_ + halves[0] * sines_}, -1);
}

at::Tensor Stage::attend(const Layer& layer, const at::Tensor& x) const {
  const at::Tensor whole = enter_parallel(norm(x, layer.norm1, layer.bias1), tensor_);
  const int64_t time = whole.size(0), batch = whole.size(1), channels = model_.dim / model_.heads;
  const int64_t heads = model_.heads / tensor_.size(), key_heads = model_.key_heads / tensor_.size();
  at::Tensor mixed;
  if (model_.llama) {
    const auto split = [&](const at::Tensor& weight, int64_t count) {
      return product(whole, weight).view({time, batch, count, channels});
    };
    const at::Tensor q = heads_first(rotated(split(layer.queries, heads)));
    const at::Tensor k = heads_first(enter_parallel(rotated(split(layer.keys, key_heads)), context_));
    const at::Tensor v = heads_first(enter_parallel(split(layer.values, key_heads), context_));
    mixed = attention(q, shared(k, heads), shared(v, heads), mask_);
  } else {
    const auto qkv = product(whole, layer.qkv, layer.qkv_bias).view({time, batch, heads, 3, channels}).unbind(3);
    mixed = attention(heads_first(qkv[0]), heads_first(enter_parallel(qkv[1], context_)),
                      heads_first(enter_parallel(qkv[2], context_)), mask_);
  }
  return plus(leave_parallel(product(mixed, layer.projection), tensor_), layer.projection_bias);
}

at::Tensor Stage::feed_forward(const Layer& layer, const at::Tensor& x) const {
  const at::Tensor whole = enter_parallel(norm(x, layer.norm2, layer.bias2), tensor_);
  const at::Tensor expanded = product(whole, layer.expand, layer.expand_bias);
  const at::Tensor hidden = model_.llama ? at::silu(product(whole, layer.gate)) * expanded : at::gelu(expanded);
  return plus(leave_parallel(product(hidden, layer.contract), tensor_), layer.contract_bias);
}

at::Tensor Stage::through(const Layer& layer, const at::Tensor& x) const {
  const at::Tensor y = x + attend(layer, x);
  return y + feed_forward(layer, y);
}

at::Tensor Stage::embed(const at::Tensor& tokens) const {
  const at::Tensor x = parallel_embedding(words_, tokens, tensor_);
  if (!positions_.defined()) return x;
  const int64_t time = x.size(0), first = first_token() + (tensor_.sequence ? tensor_.rank() * time : 0);
  return x + positions_.narrow(0, first, time).unsqueeze(1);
}

at::Tensor Stage::loss(const at::Tensor& x, const at::Tensor& targets) const {
  const at::Tensor whole = enter_parallel(norm(x, norm_, bias_), tensor_);
  return parallel_cross_entropy(product(whole, head_), targets, tensor_);
}

at::Tensor Stage::forward(const at::Tensor& input, const at::Tensor& targets, const AroundLayer& around_layer) const {
  at::Tensor x = is_first() ? embed(input) : input;
  for (const Layer& layer : layers_) x = around_layer([&] { return through(layer, x); });
  return is_last() ? loss(x, targets) : x;
}

}  // namespace gpt

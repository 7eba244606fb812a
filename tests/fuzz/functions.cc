#include "tests/fuzz/functions.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <array>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <tuple>
#include <utility>
#include <vector>

#include "ac2/internal/modules/module_stack.h"
#include "ac2/replayable.h"
#include "ac2/scope.h"
#include "tests/fuzz/regions_switch.h"
#include "tests/support/regions.h"
#include "tests/support/side_stream.h"

namespace ac2::test {

namespace {

class Wave : public torch::autograd::Function<Wave> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x) {
    const at::Tensor sine = x.sin();
    context->save_for_backward({x, sine});
    return sine * 0.5;
  }
  static Tensors backward(torch::autograd::AutogradContext* context, const Tensors& gradients) {
    const Tensors saved = context->get_saved_variables();
    // Of the intermediate nothing but the sign of its square: its own derivative is zero.
    return {gradients[0] * saved[0].cos() * 0.5 * (saved[1].detach().square() + 1).sign()};
  }
};

class Damp : public torch::autograd::Function<Damp> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, at::Tensor x) {
    x.mul_(0.75);
    context->mark_dirty({x});
    // A view that is written and saved is part of a circle of autograd's own nodes, which leaks without regions too.
    if (!x.is_view()) context->save_for_backward({x});
    return x;
  }
  static Tensors backward(torch::autograd::AutogradContext* context, const Tensors& gradients) {
    at::Tensor gradient = gradients[0] * 0.75;
    for (const at::Tensor& written : context->get_saved_variables()) gradient = gradient + written.detach() * 0.125;
    return {gradient};
  }
};

at::Tensor gradient(const at::Tensor& of, const at::Tensor& input, bool retain_graph, bool create_graph) {
  try {
    const at::Tensor found =
        torch::autograd::grad({of.sum()}, {input}, {}, retain_graph, create_graph, /*allow_unused=*/true)[0];
    if (!found.defined()) return at::zeros_like(input);
    use_on_current_stream(found);
    return found;
  } catch (const c10::Error& error) {
    throw std::runtime_error(error.what_without_backtrace());
  }
}

}  // namespace

at::Tensor whole(const at::Tensor& tensor) {
  const at::Tensor real = at::isFloatingType(tensor.scalar_type()) ? tensor : tensor.to(at::kFloat);
  if (real.sizes() == at::IntArrayRef({4, 4})) return real;
  const at::Tensor row = real.reshape({-1});
  if (row.numel() >= 16) return row.slice(0, 0, 16).view({4, 4});
  return row.slice(0, 0, row.numel() >= 4 ? 4 : 1).expand({4, 4});
}

at::Tensor wave(const at::Tensor& x) {
  return Wave::apply(x);
}

at::Tensor damp_(const at::Tensor& x) {
  try {
    return Damp::apply(x);
  } catch (...) {
    // A tensor that a function could not save, because a hook failed, stays with the function for good, and this holds
    // the function.
    const DisableCheckpointing plain;
    if (!x.is_leaf() && !x.is_view()) x.detach_();
    throw;
  }
}

at::Tensor linear_layer(const at::Tensor& x, const at::Tensor& w) {
  const at::Tensor weight = whole(w).to(at::kFloat);
  return at::gelu(at::linear(whole(x).to(at::kFloat), weight, weight[1])).tanh();
}

at::Tensor convolution(const at::Tensor& x, const at::Tensor& w) {
  const at::Tensor weight = whole(w).to(at::kFloat).view({4, 2, 2});
  return at::conv1d(whole(x).to(at::kFloat).unsqueeze(0), weight, {}, 1, /*padding=*/1, 1, /*groups=*/2)
      .slice(-1, 0, 4)
      .squeeze(0)
      .tanh();
}

at::Tensor attention(const at::Tensor& x, const at::Tensor& w) {
  const at::Tensor query = whole(x).to(at::kFloat).view({1, 1, 4, 4}), key = whole(w).to(at::kFloat).view({1, 1, 4, 4});
  return at::scaled_dot_product_attention(query, key, query, {}, 0.0, /*is_causal=*/true).view({4, 4});
}

at::Tensor lstm_step(const at::Tensor& x, const at::Tensor& w) {
  const at::Tensor input = whole(x).to(at::kFloat), weight = whole(w).to(at::kFloat).repeat({4, 1});
  const auto [hidden, cell] = at::lstm_cell(input, {input.sin(), input.cos()}, weight, weight);
  return hidden + cell.tanh();
}

at::Tensor norms(const at::Tensor& x, const at::Tensor& w) {
  const at::Tensor weight = whole(w).to(at::kFloat).select(0, 0);
  const at::Tensor y = at::layer_norm(whole(x).to(at::kFloat), {4}, weight, weight);
  return at::group_norm(at::rms_norm(y, {4}, weight), 2, weight).tanh();
}

at::Tensor loss(const at::Tensor& x, const at::Tensor& w) {
  const at::Tensor scores = whole(x).to(at::kFloat), other = whole(w).to(at::kFloat);
  return at::cross_entropy_loss(scores, other.argmax(1)) + at::smooth_l1_loss(scores, other) +
         at::binary_cross_entropy_with_logits(scores, other.sigmoid());
}

at::Tensor turned(const at::Tensor& x, const at::Tensor& w) {
  const auto complex = [](const at::Tensor& t) {
    return at::view_as_complex(whole(t).to(at::kFloat).contiguous().view({4, 2, 2}));
  };
  const at::Tensor product = complex(x).sin() * complex(w).conj().tanh();
  return at::view_as_real(product).flatten(1) + at::imag(product.conj()).repeat({1, 2});
}

at::Tensor inferred(const at::Tensor& x, const at::Tensor& w) {
  at::Tensor y;
  {
    const c10::InferenceMode inference;
    y = at::linear(whole(x).to(at::kFloat).expand({2, 4, 4}), whole(w).to(at::kFloat)).select(0, 1).relu();
  }
  return y.clone();
}

at::Tensor aside(const at::Tensor& x, const at::Tensor& w) {
  const auto product = [&] { return whole(x).to(at::kFloat).sin() * whole(w).to(at::kFloat).cos(); };
  if (x.device().is_cpu()) return product();
  const c10::impl::VirtualGuardImpl devices(x.device().type());
  return on_side_stream(devices.getStreamFromGlobalPool(x.device()), {x, w}, product);
}

struct Buffer::Memory {
  std::array<float, 16> floats;
  std::array<uint8_t, 16> bytes;
};

Buffer::Buffer() : memory_(std::make_shared<Memory>()) {
  fill(1);
}

at::Tensor Buffer::floats() {
  return at::from_blob(
      memory_->floats.data(), {4, 4}, [memory = memory_](void*) {}, at::kFloat);
}

at::Tensor Buffer::bytes() {
  return at::from_blob(
      memory_->bytes.data(), {4, 4}, [memory = memory_](void*) {}, at::kByte);
}

void Buffer::fill(int number) {
  memory_->floats.fill(0.25f * static_cast<float>(number));
  memory_->bytes.fill(static_cast<uint8_t>(64 * number));
}

Grids::Grids() {
  // As what was there before the program, wherever the first of its steps that wants them is.
  const DisableCheckpointing unrecorded;
  const c10::InferenceMode no_inference(false);
  const at::Tensor eye = at::eye(4, at::kFloat);
  coordinates_ = eye.to_sparse();
  rows_ = eye.to_sparse_csr();
  quantised_ = at::quantize_per_tensor(eye, 0.25, 0, at::kQInt8);
  factor_ = (eye * 0.5).to_sparse();
}

at::Tensor Grids::dense(int kind) const {
  switch (kind) {
    case 0:
      return coordinates_.to_dense();
    case 1:
      return rows_.to_dense();
    case 2:
      return quantised_.dequantize();
    default:
      return factor_.to_dense();
  }
}

at::Tensor Grids::values(int kind) const {
  return (kind == 0 ? coordinates_._values() : rows_.values()).expand({4, 4});
}

at::Tensor Grids::times_factor(const at::Tensor& x) const {
  return at::_sparse_mm(factor_, x);
}

void Grids::write(int kind, int way) {
  if (kind == 3 && way < 2) {
    const DisableCheckpointing unrecorded;  // so that the other data are no result of a region
    factor_.set_data(factor_.detach() * 0.75);
  } else if (kind == 3) {
    factor_.mul_(0.75);
  } else if (kind < 2) {
    const at::Tensor& grid = kind == 0 ? coordinates_ : rows_;
    const at::Tensor values = kind == 0 ? grid._values() : grid.values();
    (way == 0 ? grid : way == 1 ? grid.variable_data() : values).mul_(0.75);
  } else {
    (way == 0   ? quantised_
     : way == 1 ? quantised_.variable_data()
                : quantised_[1])
        .copy_(at::full({}, 0.5 + way, at::kFloat).expand(way == 2 ? at::IntArrayRef({4}) : at::IntArrayRef({4, 4})));
  }
}

void clamp_through_alias(const at::Tensor& t) {
  const c10::Storage& storage = t.storage();
  if (!storage.device().is_cpu()) return;  // a pointer tells of no other device
  const auto numbers = static_cast<int64_t>(storage.nbytes() / t.itemsize());
  at::from_blob(storage.mutable_data(), {numbers}, at::TensorOptions().dtype(t.dtype())).clamp_(-0.5, 0.5);
}

at::Tensor by_kernel(const at::Tensor& x, const Regions& regions) {
  at::Tensor y = whole(x.detach()).to(at::kFloat).cos();
  if (!y.device().is_cpu()) return y.mul_(0.5).add_(0.25);
  regions.before_kernel(y);
  float* numbers = y.mutable_data_ptr<float>();
  for (int64_t i = 0; i < y.numel(); ++i) {
    numbers[i] = numbers[i] * 0.5f + 0.25f;
  }
  return y;
}

namespace {

const auto& fused_op() {
  static const auto& op =
      *new auto(ac2::replayable("fuzz_fused", [](const at::Tensor& x, const at::Tensor& w, double scale) {
        at::Tensor y = at::mul(x, scale).contiguous();
        if (!y.device().is_cpu()) return y.mul_(w.cos());
        const at::Tensor cosine = w.cos().contiguous();
        float* numbers = y.mutable_data_ptr<float>();
        const float* factors = cosine.const_data_ptr<float>();
        for (int64_t i = 0; i < y.numel(); ++i) {
          numbers[i] *= factors[i];
        }
        return y;
      }));
  return op;
}

const auto& noisy_op() {
  static const auto& op = *new auto(ac2::replayable("fuzz_noisy", [](const Tensors& x) {
    return std::make_tuple(Tensors{x[0] + at::rand_like(x[0]), x[1].exp() / 9}, int64_t{2});
  }));
  return op;
}

const auto& bend_op() {
  static const auto& op = *new auto(ac2::replayable("fuzz_bend", [](const at::Tensor& x, const at::Tensor& w) {
    return std::make_pair(x.sin() * w.cos(), x.sin());
  }));
  return op;
}

class Bend : public torch::autograd::Function<Bend> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, const at::Tensor& w) {
    const auto [y, sine] = bend_op()(x, w);
    context->save_for_backward({x, w, sine});
    return y;
  }
  static Tensors backward(torch::autograd::AutogradContext* context, const Tensors& gradients) {
    const Tensors saved = context->get_saved_variables();
    const at::Tensor& x = saved[0];
    const at::Tensor& w = saved[1];
    // Of what forward computed nothing but the sign of its square: its own derivative is zero.
    const at::Tensor one = (saved[2].detach().square() + 1).sign();
    return {gradients[0] * x.cos() * w.cos() * one, -gradients[0] * x.sin() * w.sin()};
  }
};

// While it lives, this thread is in the module.
class InModule {
 public:
  explicit InModule(const char* class_name)
      : depth_(internal::ModuleStack::here().enter(std::make_shared<const internal::CalledModule>(
            class_name, std::vector<internal::ModuleName>(), nullptr))) {}
  ~InModule() { internal::ModuleStack::here().leave(depth_); }
  InModule(const InModule&) = delete;
  InModule& operator=(const InModule&) = delete;

 private:
  const size_t depth_;
};

at::Tensor floats(const at::Tensor& tensor) {
  return whole(tensor).to(at::kFloat);
}

}  // namespace

at::Tensor fused(const at::Tensor& x, const at::Tensor& w, double scale) {
  return fused_op()(floats(x), floats(w), scale);
}

Tensors noisy_pair(const at::Tensor& x) {
  const auto [pair, count] = noisy_op()(Tensors{whole(x), whole(x).cos()});
  TORCH_CHECK(count == 2, "it is given back as it was");
  return pair;
}

at::Tensor bend(const at::Tensor& x, const at::Tensor& w) {
  return Bend::apply(floats(x), floats(w));
}

at::Tensor in_modules(const at::Tensor& x, const at::Tensor& w) {
  const InModule layer("Layer");
  const at::Tensor h = whole(x).sin() * whole(w);
  at::Tensor inner;
  {
    const InModule module("Inner");
    inner = (h.cos() * h).tanh();
  }
  return inner.exp() / 9 + h;
}

at::Tensor damped_gradient(const at::Tensor& gradient) {
  return gradient.tanh() * 0.5;
}

at::Tensor slope(const at::Tensor& of, const at::Tensor& input, bool create_graph) {
  return gradient(of, input, /*retain_graph=*/true, create_graph);
}

at::Tensor slope_of_waves(const at::Tensor& of) {
  const at::AutoGradMode grad(true);
  const at::Tensor x = of.detach().requires_grad_();
  return gradient(wave(x.sin()) * x.cos(), x, /*retain_graph=*/false, /*create_graph=*/false);
}

}  // namespace ac2::test

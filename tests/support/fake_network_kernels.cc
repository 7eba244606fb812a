// Ops of networks that an accelerator has to bring itself: convolutions, and the cell of an LSTM in one op.
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/CPUFallback.h>
#include <torch/library.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/support/fake_accelerator.h"

namespace ac2::test {

namespace {

const c10::OperatorHandle& operator_of(const char* name) {
  static auto* handles = new std::map<std::string, c10::OperatorHandle>;
  return handles->try_emplace(name, c10::Dispatcher::singleton().findSchemaOrThrow(name, "")).first->second;
}

void convolution(const c10::OperatorHandle&, torch::jit::Stack* stack) {
  at::native::cpu_fallback(operator_of("aten::convolution"), stack);
}

// The arguments of convolution_backward are these and, as the fourth, the sizes of the bias.
void convolution_backward(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto arguments = stack->end() - static_cast<ptrdiff_t>(op.schema().arguments().size());
  const at::Tensor& weight = arguments[2].toTensor();
  const bool transposed = arguments[6].toBool();
  const int64_t groups = arguments[8].toInt();
  const bool wants_bias = arguments[9].toBoolList()[2];
  const int64_t channels = transposed ? weight.size(1) * groups : weight.size(0);
  stack->insert(arguments + 3, wants_bias ? c10::IValue(std::vector<int64_t>{channels}) : c10::IValue());
  at::native::cpu_fallback(operator_of("aten::convolution_backward"), stack);
}

// By the CPU's kernel key, where the CPU's networks use several ops instead.
std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_cell(const at::Tensor& input_gates, const at::Tensor& hidden_gates,
                                                         const at::Tensor& cx,
                                                         const std::optional<at::Tensor>& input_bias,
                                                         const std::optional<at::Tensor>& hidden_bias) {
  at::Tensor gates = input_gates + hidden_gates;
  for (const auto& bias : {input_bias, hidden_bias}) {
    if (bias && bias->defined()) gates += *bias;
  }
  const std::vector<at::Tensor> parts = gates.chunk(4, 1);
  const at::Tensor in = parts[0].sigmoid(), forget = parts[1].sigmoid(), cell = parts[2].tanh();
  const at::Tensor out = parts[3].sigmoid();
  const at::Tensor cy = forget * cx + in * cell;
  return {out * cy.tanh(), cy, at::cat({in, forget, cell, out}, 1)};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_cell_backward(const std::optional<at::Tensor>& grad_hy,
                                                                  const std::optional<at::Tensor>& grad_cy,
                                                                  const at::Tensor& cx, const at::Tensor& cy,
                                                                  const at::Tensor& workspace, bool has_bias) {
  const std::vector<at::Tensor> parts = workspace.chunk(4, 1);
  const at::Tensor &in = parts[0], &forget = parts[1], &cell = parts[2], &out = parts[3];
  const at::Tensor grad_h = grad_hy && grad_hy->defined() ? *grad_hy : at::zeros_like(cx);
  const at::Tensor tanh_cy = cy.tanh();
  at::Tensor grad_c = grad_h * out * (1 - tanh_cy * tanh_cy);
  if (grad_cy && grad_cy->defined()) grad_c += *grad_cy;
  at::Tensor grad_gates = at::cat({grad_c * cell * in * (1 - in), grad_c * cx * forget * (1 - forget),
                                   grad_c * in * (1 - cell * cell), grad_h * tanh_cy * out * (1 - out)},
                                  1);
  at::Tensor grad_bias = has_bias ? grad_gates.sum(0) : at::Tensor();
  return {std::move(grad_gates), grad_c * forget, std::move(grad_bias)};
}

}  // namespace

void register_fake_network_kernels() {
  static auto* there =
      new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  there->impl("convolution_overrideable", torch::CppFunction::makeFromBoxedFunction<&convolution>());
  there->impl("convolution_backward_overrideable", torch::CppFunction::makeFromBoxedFunction<&convolution_backward>());
  static auto* on_cpu = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::CPU, __FILE__, __LINE__);
  on_cpu->impl("_thnn_fused_lstm_cell", &lstm_cell);
  on_cpu->impl("_thnn_fused_lstm_cell_backward_impl", &lstm_cell_backward);
}

}  // namespace ac2::test

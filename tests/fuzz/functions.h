// The functions that random programs call beside PyTorch's own ops.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <memory>
#include <vector>

namespace ac2::test {

class Regions;
using Tensors = std::vector<at::Tensor>;

// 4 by 4 of its elements, whatever its sizes: itself, a view or a copy. Integers become floats.
at::Tensor whole(const at::Tensor& tensor);

// 0.5 sin(x), by a function of the user's that saves its input and, as an output that is not one, sin(x).
at::Tensor wave(const at::Tensor& x);
// x *= 0.75, by one that marks its input as written, and saves what it wrote.
at::Tensor damp_(const at::Tensor& x);

// The result of `fn`, in no_grad.
template <class Fn>
void no_gradient(const Fn& fn) {
  const at::NoGradGuard no_grad;
  fn();
}

// The gradient of the sum of `of` with respect to `input`, or zeros where there is none. The graph is kept. What
// autograd refuses ends the program, as it would in the last backward: with regions it refuses fewer writes.
at::Tensor slope(const at::Tensor& of, const at::Tensor& input, bool create_graph);
// That of a few waves of `of`, in a graph that begins there and is not kept.
at::Tensor slope_of_waves(const at::Tensor& of);

// Small layers of `x` with weights from `w`, by whole() of both; their results are 4 by 4, but for the loss.
at::Tensor linear_layer(const at::Tensor& x, const at::Tensor& w);
at::Tensor convolution(const at::Tensor& x, const at::Tensor& w);
at::Tensor attention(const at::Tensor& x, const at::Tensor& w);
at::Tensor lstm_step(const at::Tensor& x, const at::Tensor& w);
at::Tensor norms(const at::Tensor& x, const at::Tensor& w);
at::Tensor loss(const at::Tensor& x, const at::Tensor& w);
// A product of complex numbers, one of them lazily conjugated.
at::Tensor turned(const at::Tensor& x, const at::Tensor& w);
// Computed in inference mode, and taken out of it.
at::Tensor inferred(const at::Tensor& x, const at::Tensor& w);
// A product computed on another stream of the device, if it has streams, ordered as CUDA's manual says.
at::Tensor aside(const at::Tensor& x, const at::Tensor& w);

// Memory of the program's own, and tensors over it. No op tells of fill().
class Buffer {
 public:
  Buffer();
  at::Tensor floats();  // 4 by 4
  at::Tensor bytes();   // 4 by 4
  void fill(int number);

 private:
  struct Memory;
  std::shared_ptr<Memory> memory_;
};
// Tensors of the program's that a region holds whole: by coordinates, by compressed rows, quantised, and a sparse
// factor that autograd saves.
class Grids {
 public:
  static constexpr int kKinds = 4;

  Grids();
  at::Tensor dense(int kind) const;   // 4 by 4
  at::Tensor values(int kind) const;  // 4 by 4, of what lies in the tensor by coordinates or by compressed rows
  at::Tensor times_factor(const at::Tensor& x) const;  // 4 by 4, as `x` is
  // Writes other numbers, by way of the tensor itself or of another one over its bytes. The factor is mostly given
  // other data: plain autograd and a region differ in what backward reads where an open region has saved it and
  // somebody writes to it unseen.
  void write(int kind, int way);

 private:
  at::Tensor coordinates_, rows_, quantised_, factor_;
};

// Writes to all that lies in the storage of `t`, through another tensor over the same bytes.
void clamp_through_alias(const at::Tensor& t);

// The cosine of whole(x), over which a kernel that is no op has written on the CPU before anybody reads it.
at::Tensor by_kernel(const at::Tensor& x, const Regions& regions);

// x * scale * cos(w), by whole() of both, by a function that is an op by ac2::replayable: on the CPU it computes
// through pointers. It takes nothing that requires a gradient.
at::Tensor fused(const at::Tensor& x, const at::Tensor& w, double scale);
// Two tensors, by another one, which draws from the default generator.
Tensors noisy_pair(const at::Tensor& x);
// sin(x) * cos(w), by a function of the user's whose forward is such an op. Saves x, w and what the op returned.
at::Tensor bend(const at::Tensor& x, const at::Tensor& w);
// Ops in modules, for policies by module: of the classes Layer, and Inner in it.
at::Tensor in_modules(const at::Tensor& x, const at::Tensor& w);

// For register_hook().
at::Tensor damped_gradient(const at::Tensor& gradient);

}  // namespace ac2::test

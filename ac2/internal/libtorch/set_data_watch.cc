#include "ac2/internal/libtorch/set_data_watch.h"

#include <ATen/core/VariableHooksInterface.h>

#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

namespace ac2::internal {

namespace {

using at::TensorBase;

// How a table gives a tensor's node: by a std::shared_ptr, from 2.13 on by a c10::intrusive_ptr.
template <class Hooks>
using GradFn = decltype(std::declval<const Hooks&>().grad_fn(std::declval<const TensorBase&>()));

// All functions that the table has in each version of LibTorch. `Hooks` is at::impl::VariableHooksInterface.
template <class Hooks>
class HooksInFrontBase : public Hooks {
 public:
  HooksInFrontBase(const Hooks& behind, SetDataWatch watch) : behind_(behind), watch_(watch) {}

  void set_data(const TensorBase& tensor, const TensorBase& data) const override {
    watch_(tensor, [&] { behind_.set_data(tensor, data); });
  }

  TensorBase tensor_data(const TensorBase& tensor) const override { return behind_.tensor_data(tensor); }
  TensorBase variable_data(const TensorBase& tensor) const override { return behind_.variable_data(tensor); }
  GradFn<Hooks> grad_fn(const TensorBase& tensor) const override { return behind_.grad_fn(tensor); }
  unsigned _register_hook(const TensorBase& tensor, std::function<TensorBase(const TensorBase&)> hook) const override {
    return behind_._register_hook(tensor, std::move(hook));
  }
  void remove_hook(const TensorBase& tensor, unsigned place) const override { behind_.remove_hook(tensor, place); }
  bool is_view(const TensorBase& tensor) const override { return behind_.is_view(tensor); }
  const TensorBase& base(const TensorBase& tensor) const override { return behind_.base(tensor); }
  const std::string& name(const TensorBase& tensor) const override { return behind_.name(tensor); }
  bool is_leaf(const TensorBase& tensor) const override { return behind_.is_leaf(tensor); }
  int64_t output_nr(const TensorBase& tensor) const override { return behind_.output_nr(tensor); }
  TensorBase data(const TensorBase& tensor) const override { return behind_.data(tensor); }
  int64_t _version(const TensorBase& tensor) const override { return behind_._version(tensor); }
  void retain_grad(const TensorBase& tensor) const override { behind_.retain_grad(tensor); }
  bool retains_grad(const TensorBase& tensor) const override { return behind_.retains_grad(tensor); }
  void _backward(const at::Tensor& tensor, at::TensorList inputs, const std::optional<at::Tensor>& gradient,
                 std::optional<bool> keep_graph, bool create_graph) const override {
    behind_._backward(tensor, inputs, gradient, keep_graph, create_graph);
  }
  void requires_grad_(const TensorBase& tensor, bool requires_grad) const override {
    behind_.requires_grad_(tensor, requires_grad);
  }
  void basic_autograd_not_implemented_fallback(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                                               torch::jit::Stack* stack) const override {
    behind_.basic_autograd_not_implemented_fallback(op, keys, stack);
  }

 protected:
  const Hooks& behind() const { return behind_; }

 private:
  const Hooks& behind_;
  const SetDataWatch watch_;
};

template <class Hooks>
class HooksInFront final : public HooksInFrontBase<Hooks> {
 public:
  using HooksInFrontBase<Hooks>::HooksInFrontBase;
};

// With a gradient's dtype of its own, as younger versions have it.
template <class Hooks>
requires requires(const Hooks& hooks, const TensorBase& tensor) {
  hooks.grad_dtype(tensor);
}
class HooksInFront<Hooks> final : public HooksInFrontBase<Hooks> {
 public:
  using HooksInFrontBase<Hooks>::HooksInFrontBase;

  std::optional<c10::ScalarType> grad_dtype(const TensorBase& tensor) const override {
    return this->behind().grad_dtype(tensor);
  }
  void set_grad_dtype(const TensorBase& tensor, const std::optional<c10::ScalarType>& dtype) const override {
    this->behind().set_grad_dtype(tensor, dtype);
  }
};

}  // namespace

void watch_set_data(SetDataWatch watch) {
  static std::once_flag once;
  std::call_once(once, [watch] {
    // Leaked: tensors live during static destruction too.
    at::impl::SetVariableHooks(
        new HooksInFront<at::impl::VariableHooksInterface>(*at::impl::GetVariableHooks(), watch));
  });
}

}  // namespace ac2::internal

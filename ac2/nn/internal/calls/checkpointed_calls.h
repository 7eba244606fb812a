// The layers beneath Checkpointed<M>: M with its settings, and M's forward() in all the ways in which M's own can be
// called.
//
// AnyModule wants exactly one forward(). A person wants default arguments and braces, which C++ does not let a wrapper
// pass on. Hence two layers: a holder's `->` leads to CheckpointedCalls<M>, which has one overload for each number of
// arguments that M takes. Beneath it AnyModule sees the single forward() of checkpointed_arities.h.
//
// Rejected: M as a member (names get a prefix, and as<M>() and apply() see another type); hooks on the virtual
// is_training() (nothing tells the end of a forward).
#pragma once

#include <c10/util/Exception.h>
#include <torch/nn/module.h>

#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <utility>

#include "ac2/nn/checkpointing.h"
#include "ac2/nn/internal/calls/default_arguments.h"
#include "ac2/nn/internal/calls/forward_of.h"

namespace ac2 {

template <class M, class Forward>
class Checkpointed;

namespace internal {

template <class M>
struct AlreadyCheckpointed {};

// Tells the constructor from a module from those of M, some of which take anything (Sequential's).
struct FromModule {};

// M and its settings.
template <class M>
class CheckpointedState
    : public M,
      public std::conditional_t<std::is_base_of_v<CheckpointedModule, M>, AlreadyCheckpointed<M>, CheckpointedModule> {
  static_assert(std::is_base_of_v<torch::nn::Module, M>, "M is a torch::nn::Module, such as torch::nn::LinearImpl");
  static_assert(!std::is_final_v<M>, "Checkpointed<M> derives from M, which must not be final");

 public:
  using M::M;
  // Shares `module`'s parameters, buffers and submodules, and copies everything else.
  CheckpointedState(FromModule, const M& module, Policy policy, CheckpointOptions options)
      : M(with_name(module)), checkpointing_(std::move(policy), std::move(options)) {
    DefaultArguments<M>::note(*this);
    checkpointing_.set_class(typeid(M));
  }

  Checkpointing& checkpointing() override { return checkpointing_; }
  const Checkpointing& checkpointing() const override { return checkpointing_; }

  // A deep copy of M, if M has one, with the same settings.
  std::shared_ptr<torch::nn::Module> clone(const std::optional<torch::Device>& device = std::nullopt) const override {
    const std::shared_ptr<torch::nn::Module> plain = M::clone(device);
    if constexpr (std::is_copy_constructible_v<M>) {
      const M* module = dynamic_cast<const M*>(plain.get());
      TORCH_CHECK(module != nullptr, "clone() of ", this->name(),
                  " returned a module of another type, which lacks what this one adds. Derive it from "
                  "torch::nn::Cloneable<> of itself.");
      auto copy = std::make_shared<Checkpointed<M, ForwardOf<M>>>(
          FromModule(), *module, Policy(checkpointing_.policy()), CheckpointOptions(checkpointing_.options()));
      copy->checkpointing() = checkpointing_;
      return copy;
    } else {
      TORCH_CHECK(false, "clone() of the checkpointed module ", this->name(), " needs a module that can be copied.");
    }
  }

 protected:
  template <class R, class... Args>
  R run_forward(Args&&... args) {
    return checkpointing_.run(
        this->is_training(), [&]() -> R { return M::forward(std::forward<Args>(args)...); }, args...);
  }

  template <class Result, class... Args>
  Result run_forward_returning(Args&&... args) {
    return checkpointing_.run(
        this->is_training(), [&]() -> Result { return M::template forward<Result>(std::forward<Args>(args)...); },
        args...);
  }

 private:
  // name() is the type's, and kept from the first call on. The call here makes it M's.
  static const M& with_name(const M& module) {
    module.name();
    return module;
  }

  Checkpointing start() {
    if constexpr (std::is_copy_constructible_v<M>) {
      const M plain(static_cast<const M&>(*this));
      plain.name();
      static_cast<torch::nn::Module&>(*this) = plain;
    }
    DefaultArguments<M>::note(*this);
    Checkpointing checkpointing;
    checkpointing.set_class(typeid(M));
    return checkpointing;
  }

  Checkpointing checkpointing_ = start();
};

// forward() with these arguments, besides Base's.
template <class Base, class R, class... Args>
class WithForward : public Base {
 public:
  using Base::Base;
  using Base::forward;
  R forward(Args... args) { return this->template run_forward<R>(std::forward<Args>(args)...); }
};

// A forward() of every number of arguments that M's takes: the same conversions, the same default arguments.
template <class Base, class M, class R, class Given, class Rest>
struct AddForwards;

template <class Base, class M, class R, class... Given>
struct AddForwards<Base, M, R, std::tuple<Given...>, std::tuple<>> {
  using type = std::conditional_t<ForwardTakes<M, Given...>, WithForward<Base, R, Given...>, Base>;
};

template <class Base, class M, class R, class... Given, class Next, class... Rest>
struct AddForwards<Base, M, R, std::tuple<Given...>, std::tuple<Next, Rest...>>
    : AddForwards<std::conditional_t<ForwardTakes<M, Given...>, WithForward<Base, R, Given...>, Base>, M, R,
                  std::tuple<Given..., Next>, std::tuple<Rest...>> {};

// Where forward is overloaded or a template, forward takes all that M's takes, forward<R>() included.
template <class M>
class WithAnyForward : public CheckpointedState<M> {
 public:
  using CheckpointedState<M>::CheckpointedState;

  template <class... Args>
  requires ForwardTakes<M, Args...>
  decltype(auto) forward(Args&&... args) {
    using R = decltype(std::declval<M&>().forward(std::forward<Args>(args)...));
    return this->template run_forward<R>(std::forward<Args>(args)...);
  }

  template <class Result, class... Args>
  requires requires(M& module, Args&&... args) { module.template forward<Result>(std::forward<Args>(args)...); }
  Result forward(Args&&... args) { return this->template run_forward_returning<Result>(std::forward<Args>(args)...); }
};

// The class that AddForwards starts from.
template <class M>
class WithoutForward : public CheckpointedState<M> {
 public:
  using CheckpointedState<M>::CheckpointedState;

 protected:
  struct Nothing {};
  void forward(Nothing) {}
};

template <class M, class Forward, bool kOneForward>
struct CallsOf {
  using type = WithAnyForward<M>;
};
template <class M, class R, class... Args>
struct CallsOf<M, R(Args...), true> {
  using type = typename AddForwards<WithoutForward<M>, M, R, std::tuple<>, std::tuple<Args...>>::type;
};

// A class over M on which every call of forward() works that works on M. AnyModule cannot see such a class, because
// AnyModule wants one forward() alone.
template <class M>
using CheckpointedCalls = typename CallsOf<M, ForwardOf<M>, HasOneForward<M>>::type;

}  // namespace internal
}  // namespace ac2

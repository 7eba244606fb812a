// The signature of a module's forward(), as seen from outside.
#pragma once

#include <torch/nn/modules/container/sequential.h>

#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

namespace ac2::internal {

template <class Pointer>
struct SignatureOf {
  using type = void;
};
template <class R, class C, class... Args>
struct SignatureOf<R (C::*)(Args...)> {
  using type = R(Args...);
};
template <class R, class C, class... Args>
struct SignatureOf<R (C::*)(Args...) const> {
  using type = R(Args...);
};
template <class R, class C, class... Args>
struct SignatureOf<R (C::*)(Args...) noexcept> {
  using type = R(Args...);
};
template <class R, class C, class... Args>
struct SignatureOf<R (C::*)(Args...) const noexcept> {
  using type = R(Args...);
};

template <class M>
constexpr auto forward_of() {
  static_assert(sizeof(M) > 0, "Checkpointed<M> needs the definition of M");
  if constexpr (requires { &M::forward; }) {
    return std::type_identity<typename SignatureOf<decltype(&M::forward)>::type>();
  } else if constexpr (std::is_base_of_v<torch::nn::SequentialImpl, M>) {
    // With this signature a checkpointed Sequential fits into a Sequential, which a plain one does not.
    return std::type_identity<at::Tensor(at::Tensor)>();
  } else {
    return std::type_identity<void>();
  }
}

// "R(Args...)", or void where forward is overloaded or a template.
template <class M>
using ForwardOf = typename decltype(forward_of<M>())::type;

// Whether M's forward is one function, whose parameters can be known.
template <class M>
concept HasOneForward = requires {
  &M::forward;
};

template <class M, class... Args>
concept ForwardTakes = requires(M& module, Args&&... args) {
  module.forward(std::forward<Args>(args)...);
};

template <class M, class Args, size_t... kIndices>
constexpr bool forward_takes_first(std::index_sequence<kIndices...>) {
  return ForwardTakes<M, std::tuple_element_t<kIndices, Args>...>;
}

// Whether M's forward can be called with the first `kCount` of `Args` (a tuple of types) alone.
template <class M, class Args, size_t kCount>
inline constexpr bool kForwardTakesFirst = forward_takes_first<M, Args>(std::make_index_sequence<kCount>());

}  // namespace ac2::internal

// The tensors in what a forward takes or returns.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/modules/container/any_value.h>

#include <concepts>
#include <iterator>
#include <optional>
#include <ranges>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace ac2::internal {

template <class T>
concept TensorLike = std::is_convertible_v<const T&, const at::Tensor&>;

template <class T>
concept TupleLike = requires {
  std::tuple_size<T>::value;
};

template <class T>
inline constexpr bool kIsOptional = false;
template <class T>
inline constexpr bool kIsOptional<std::optional<T>> = true;

// A range of itself, as std::filesystem::path is, holds no tensors.
template <class T>
concept RangeOfOthers =
    std::ranges::range<const T> && !std::same_as<std::remove_cvref_t<std::ranges::range_reference_t<const T>>, T>;

template <class T, class Fn>
void for_each_tensor(const T& value, const Fn& fn);

// Visits the tensors of a value whose type is known only at run time: a type that LibTorch's modules take and return.
template <class Fn, class... Types>
void for_each_tensor_of_type(torch::nn::AnyValue value, const Fn& fn, std::type_identity<Types>...) {
  const auto attempt = [&](auto* held) {
    if (held != nullptr) for_each_tensor(*held, fn);
    return held != nullptr;
  };
  static_cast<void>((attempt(value.try_get<Types>()) || ...));
}

// Calls fn(tensor) for every tensor in `value`, undefined ones included: in tuples, pairs, optionals, arrays, and
// containers of those, maps included; and in an AnyValue with one of the types listed here. Nothing for other types.
template <class T, class Fn>
void for_each_tensor(const T& value, const Fn& fn) {
  if constexpr (TensorLike<T>) {
    fn(static_cast<const at::Tensor&>(value));
  } else if constexpr (std::same_as<T, torch::nn::AnyValue>) {
    using at::Tensor;
    for_each_tensor_of_type(value, fn, std::type_identity<Tensor>(), std::type_identity<std::tuple<Tensor, Tensor>>(),
                            std::type_identity<std::tuple<Tensor, Tensor, Tensor>>(),
                            std::type_identity<std::tuple<Tensor, std::tuple<Tensor, Tensor>>>(),
                            std::type_identity<std::optional<std::tuple<Tensor, Tensor>>>(),
                            std::type_identity<std::optional<Tensor>>(), std::type_identity<std::vector<Tensor>>(),
                            std::type_identity<std::pair<Tensor, Tensor>>());
  } else if constexpr (kIsOptional<T>) {
    if (value.has_value()) for_each_tensor(*value, fn);
  } else if constexpr (TupleLike<T>) {
    std::apply([&](const auto&... parts) { (for_each_tensor(parts, fn), ...); }, value);
  } else if constexpr (RangeOfOthers<T>) {
    for (const auto& element : value) for_each_tensor(element, fn);
  }
}

}  // namespace ac2::internal

// The tensors in what a forward takes or returns.
#pragma once

#include <ATen/core/Tensor.h>

#include <concepts>
#include <iterator>
#include <optional>
#include <ranges>
#include <tuple>
#include <type_traits>

namespace ac2::nn::internal {

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

// Calls fn(tensor) for every tensor in `value`, undefined ones included: in tuples, pairs, optionals, arrays, and
// containers of those, maps included. Nothing for other types.
template <class T, class Fn>
void for_each_tensor(const T& value, const Fn& fn) {
  if constexpr (TensorLike<T>) {
    fn(static_cast<const at::Tensor&>(value));
  } else if constexpr (kIsOptional<T>) {
    if (value.has_value()) for_each_tensor(*value, fn);
  } else if constexpr (TupleLike<T>) {
    std::apply([&](const auto&... parts) { (for_each_tensor(parts, fn), ...); }, value);
  } else if constexpr (RangeOfOthers<T>) {
    for (const auto& element : value) for_each_tensor(element, fn);
  }
}

}  // namespace ac2::nn::internal

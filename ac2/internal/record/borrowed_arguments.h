// BorrowedArguments: what an op is called with, boxed, without a reference to its tensors.
//
//   const BorrowedArguments<2> arguments(self, other);
//   record(arguments.values());
//
// From LibTorch 2.10 on a tensor that a Python object stands for takes the GIL when its references become two and when
// they become one again (c10/util/intrusive_ptr.h), which is what a copy for each call would do. The caller of an op
// has a reference for as long as the call lasts. Whoever copies an element gets a reference of its own, as ever.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/MaybeOwned.h>

#include <array>
#include <cstddef>
#include <optional>
#include <type_traits>

namespace ac2::internal {

template <size_t kCount>
class BorrowedArguments {
 public:
  // Delegates, so that what was borrowed is given back if boxing another argument throws.
  template <class... Args>
  explicit BorrowedArguments(const Args&... args) requires(sizeof...(Args) == kCount) : BorrowedArguments() {
    size_t i = 0;
    ((values_[i++] = box(args)), ...);
  }
  ~BorrowedArguments() {
    for (c10::IValue& value : values_) {
      if (value.isTensor()) {
        c10::MaybeOwnedTraits<c10::IValue>::destroyBorrow(value);
      }
    }
  }
  BorrowedArguments(const BorrowedArguments&) = delete;
  BorrowedArguments& operator=(const BorrowedArguments&) = delete;

  c10::ArrayRef<c10::IValue> values() const { return values_; }

 private:
  BorrowedArguments() = default;

  template <class Arg>
  static c10::IValue box(const Arg& arg) {
    static_assert(!std::is_same_v<Arg, std::optional<at::Tensor>>, "it would be owned and given back");
    if constexpr (std::is_same_v<Arg, at::Tensor>) {
      return c10::IValue(c10::MaybeOwnedTraits<at::Tensor>::createBorrow(arg));
    } else {
      return c10::IValue(arg);
    }
  }

  std::array<c10::IValue, kCount> values_;
};

}  // namespace ac2::internal

// BorrowedArguments are the arguments of a call, boxed, without a reference to their tensors.
//
//   BorrowedArguments<2> arguments(self, other);
//   if (…code of the program may run before the call is recorded…) arguments.own();
//   record(arguments.values());
//
// From LibTorch 2.10 on a tensor that a Python object stands for takes the GIL when its references become two and when
// they become one again (c10/util/intrusive_ptr.h), which is what a copy for each call would do. The caller of an op
// has a reference for as long as the call lasts, unless the op itself runs code of the program: a policy, a destructor
// of an object that is dropped to make room. Such code may drop the program's last reference, so that own() has to be
// called before. A copy of an element has a reference of its own, as ever.
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
      if (!owned_ && value.isTensor()) {
        c10::MaybeOwnedTraits<c10::IValue>::destroyBorrow(value);
      }
    }
  }
  BorrowedArguments(const BorrowedArguments&) = delete;
  BorrowedArguments& operator=(const BorrowedArguments&) = delete;

  // From here on the tensors live as long as this object.
  void own() {
    if (owned_) {
      return;
    }
    std::array<c10::IValue, kCount> owned = values_;
    owned.swap(values_);
    for (c10::IValue& borrowed : owned) {
      if (borrowed.isTensor()) {
        c10::MaybeOwnedTraits<c10::IValue>::destroyBorrow(borrowed);
      }
    }
    owned_ = true;
  }
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
  bool owned_ = false;
};

}  // namespace ac2::internal

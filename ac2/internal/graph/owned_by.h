// A part of an object that all may read, and that only the named classes change: the compiler refuses the others.
//
//   OwnedBy<int32_t, Pins> pins{0};
//   if (value.parts.pins > 0) …            // anybody
//   ++value.parts.pins.change();           // in a function of Pins
//
// Threads: as the object it is a part of.
#pragma once

#include <utility>

namespace ac2::internal {

template <class T, class A, class B = A, class C = A>
class OwnedBy {
 public:
  constexpr explicit OwnedBy(T value) : value_(std::move(value)) {}

  constexpr operator const T&() const { return value_; }  // NOLINT(google-explicit-constructor)
  constexpr const T& get() const { return value_; }

 private:
  friend A;
  friend B;
  friend C;

  T& change() { return value_; }

  T value_;
};

}  // namespace ac2::internal

// Sees LibTorch switch oneDNN off while an op runs.
//
//   const OneDnnWatch watch(facts.reads_precision);
//   …run the op…
//   if (watch.was_switched_off()) { … }
//
// Where oneDNN gets no memory for a product, the kernel computes the product without oneDNN, with other bits, and
// switches oneDNN off for the process (aten/src/ATen/native/LinearAlgebra.cpp).
#pragma once

#include <ATen/Context.h>

namespace ac2::internal {

class OneDnnWatch {
 public:
  // Sees nothing of ops that are no products.
  explicit OneDnnWatch(bool may_be_product) : was_on_(may_be_product && at::globalContext().userEnabledMkldnn()) {}

  bool was_switched_off() const { return was_on_ && !at::globalContext().userEnabledMkldnn(); }

 private:
  const bool was_on_;
};

}  // namespace ac2::internal

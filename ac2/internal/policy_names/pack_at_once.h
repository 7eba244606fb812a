// The pack function of one of our own policies, which lets go of nothing that the program has:
//
//   hooks.pack = PackAtOnce{std::move(hooks.pack)};
//   …
//   if (is_packed_at_once(hooks)) …
//
// The tape calls such a function while autograd saves the arguments of an op that is about to run. A function of the
// program's may drop the last reference to an argument, so the tape calls it only when the op has run.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <functional>

#include "ac2/policy.h"

namespace ac2::internal {

struct PackAtOnce {
  std::function<c10::IValue(const at::Tensor&)> pack;

  c10::IValue operator()(const at::Tensor& tensor) const { return pack(tensor); }
};

inline bool is_packed_at_once(const SaveWithHooks& hooks) {
  return hooks.pack.target<PackAtOnce>() != nullptr;
}

}  // namespace ac2::internal

// The pack and unpack functions of a policy that saves in another form, used by hand.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <cstdint>

#include "ac2/policy.h"
#include "ac2/policy_instance.h"

namespace ac2::test {

// Those that `policy` decides on for an op without overloads; there must be some.
inline SaveWithHooks hooks_of(const Policy& policy, const char* op) {
  const FormPtr form = enter_policy(policy).decide(c10::Dispatcher::singleton().findSchemaOrThrow(op, ""))->form();
  return {[form](const at::Tensor& tensor) {
            const FormInput input = {static_cast<int64_t>(tensor.nbytes()), tensor.scalar_type(), tensor.device()};
            return form->takes(input) ? form->pack(tensor) : c10::IValue();
          },
          [form](const c10::IValue& packed) { return form->unpack(packed); }};
}

// Bytes of all tensors in it.
inline int64_t packed_bytes(const c10::IValue& packed) {
  int64_t bytes = 0;
  packed.visit([&](const c10::IValue& part) {
    if (part.isTensor() && part.toTensor().defined()) bytes += static_cast<int64_t>(part.toTensor().storage().nbytes());
    return false;
  });
  return bytes;
}

}  // namespace ac2::test

// Names of forms that values are packed in, by which a plan's file names the form.
//
//   PolicyDecision form = named_form({pack, unpack}, "quantized 8 bits, seed 0");
//   name_of_form(*form.save_with_hooks());   // "quantized 8 bits, seed 0"
//
// A name says all that is needed to make the form again (internal::form_named of policy_names.h). Forms of the
// program's own have none.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <functional>
#include <string>
#include <utility>

#include "ac2/internal/region/decision_access.h"
#include "ac2/policy.h"

namespace ac2::internal {

// A pack function with the name of its form.
struct NamedPack {
  std::function<c10::IValue(const at::Tensor&)> pack;
  std::string name;

  c10::IValue operator()(const at::Tensor& tensor) const { return pack(tensor); }
};

// The functions must let go of nothing that the program has, as of DecisionAccess::of_harmless().
inline PolicyDecision named_form(SaveWithHooks functions, std::string name) {
  functions.pack = NamedPack{std::move(functions.pack), std::move(name)};
  return DecisionAccess::of_harmless(std::move(functions));
}

// Empty for a form without a name.
inline std::string name_of_form(const SaveWithHooks& functions) {
  const auto* pack = functions.pack.target<NamedPack>();
  return pack != nullptr ? pack->name : std::string();
}

}  // namespace ac2::internal

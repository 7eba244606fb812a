// Saved tensors that have no plain storage: sparse ones, nested ones, subclasses that are written in Python, and so on.
// The parts that a tensor is made of are saved, if its class names them (subclass_codec.h). Otherwise the tensor is
// held whole.
//
//   const OpaqueForm form = opaque_form_of(tensor, [&] { return SavedTensorHook::make(tape); });
//   …
//   at::Tensor tensor = unpack_parts(form.parts);
//
// A value has the parts, for all hooks on it.
//
// Threads: any, without a lock: a codec may take Python's, and detach() may be Python code or run ops.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/FunctionRef.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <memory>

#include "ac2/internal/graph/value_forms.h"

namespace ac2::internal {

// With the parts of `tensor`, each saved by a hook that `make_hook` makes, or with an alias of it. Runs no op that is
// recorded: autograd is in the middle of one.
OpaqueForm opaque_form_of(const at::Tensor& tensor,
                          c10::function_ref<std::unique_ptr<torch::autograd::SavedVariableHooks>()> make_hook);

// Puts the tensor together again, of what its hooks unpack. Undefined if `parts` is none, for a tensor that is held
// whole.
at::Tensor unpack_parts(const c10::IValue& parts);

}  // namespace ac2::internal

// Names for values, so that a policy can say what becomes of them without knowing the op that computes them. JAX's
// checkpoint_name.
//
//   at::Tensor forward(at::Tensor x) {
//     x = ac2::name_tensor(attention->forward(x), "attn_out");
//     ...
//   }
//   ac2::PolicyScope scope(ac2::policies::save_only_these_names({"attn_out"}));
//
// A name is for the value that the tensor's storage holds now: a name on a view names all of the storage, and a later
// in-place write makes a value without a name. Policies have their say of a name through Policy::with_names(). The
// policies of nested scopes are resolved as for an op, from the outermost to the innermost; one with nothing to say of
// the name says what it said of the op that computed the tensor. A callable is the exception: it has seen the op, is
// not asked again, and counts only if it has names of its own. Where none has anything to say of the name, the op's
// decision stands. A tag wins over a name, whichever comes first. Of several names of a tensor, the last that some
// policy has something to say of counts.
//
// Where policies save but a name says RECOMPUTE, the value is computed again from what is kept, or alive when it is
// named; ops on the way whose results are gone are replayed too, but none that policies say MUST_SAVE of: then it stays
// saved.
//
// Guaranteed: no op runs, nothing is copied, and gradients are the same bits. A region in which some policy looks at
// names keeps the state of generators and small records of ops that it would else forget, and no more bytes of tensors.
// Threads: for regions of the calling thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <string_view>

namespace ac2 {

// Returns `tensor` itself. Does nothing outside a region, so that a model with names runs without checkpointing too,
// nor for an inference tensor. Throws c10::Error for an undefined tensor, for an empty name, for "Conflicting
// policies", and what a policy throws.
at::Tensor name_tensor(const at::Tensor& tensor, std::string_view name);

}  // namespace ac2

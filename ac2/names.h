// Names for values, so that a policy can decide for them without knowing the op that computes them. JAX's
// checkpoint_name does the same.
//
//   at::Tensor forward(at::Tensor x) {
//     x = ac2::name_tensor(attention->forward(x), "attn_out");
//     ...
//   }
//   ac2::PolicyScope scope(ac2::policies::save_only_these_names({"attn_out"}));
//
// A name is for the value that the tensor's storage holds now. So a name on a view names all of the storage, and a
// later in-place write makes another value, without a name. Policies decide for names through Policy::with_names().
//
// How nested scopes are resolved: as for an op, from the outermost to the innermost. A policy that says nothing of the
// name counts with what it said of the op that computed the tensor. A callable has seen that op already and is not
// asked again, so it counts only if it has names of its own. If no policy says anything of the name, the decision for
// the op stands. A tag wins over a name, whichever comes first. Of several names of one tensor, the last one that a
// policy says something of counts.
//
// If the policies save the value but a name says RECOMPUTE, the value is recomputed from what is held, or alive when it
// is named. Ops on the way whose results are gone are replayed too. If one of those is MUST_SAVE, the value stays
// saved.
//
// Guaranteed: no op runs, nothing is copied, and gradients are bitwise identical. If some policy looks at names, the
// region holds the states of generators and small records of ops that it would otherwise drop, but no more bytes
// of tensors. Threads: names are for regions of the calling thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <string_view>

namespace ac2 {

// Returns `tensor` itself. Does nothing outside a region, so that a model with names also runs without checkpointing,
// and nothing for an inference tensor. Throws c10::Error for an undefined tensor, for an empty name or a null pointer,
// for "Conflicting policies", and what a policy throws.
at::Tensor name_tensor(const at::Tensor& tensor, std::string_view name);
at::Tensor name_tensor(const at::Tensor& tensor, const char* name);
at::Tensor name_tensor(const at::Tensor& tensor, std::nullptr_t name) = delete;

}  // namespace ac2

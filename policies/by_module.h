// A policy that decides by the module in which an op runs, as the author of a model thinks of it.
//
//   const ac2::Policy policy = ac2::policies::by_module({
//       {"layers.*.attention.wo", ac2::CheckpointPolicy::MUST_SAVE},
//       {"layers.*.mlp :: aten.gelu", ac2::CheckpointPolicy::PREFER_RECOMPUTE},
//       {"Attention", ac2::forms::narrow(at::kBFloat16)},
//   });
//
// A rule is a pattern over modules, optionally with one over ops, and a decision; the first rule that matches decides.
// PREFER_RECOMPUTE for ops that no rule matches.
//   - A path is a dotted name, as of named_modules(), relative to the model. '*' and '?' stand for characters of one
//     component, "**" for any number of components. A path matches an op if it matches the module in which the op runs,
//     or one around it: an op of "layers.0.mlp.act" is an op of "layers.0.mlp". The empty path is the model itself, and
//     matches all that runs in it. "**" matches everything, also what runs outside of all modules.
//   - A pattern without '.', '*' and '?' may also be a class ("LlamaMLP"), without its namespaces; a module of a class
//     BlockImpl is a "Block" too. The pattern matches an op if a module around the op has that class.
//   - Ops are names and patterns as in policies/listed_ops.h, also as Python spells them: "aten.gelu",
//     "aten.add.Tensor", "aten.*mm*". The "::" in front of them has a space on both sides.
//
// How an op knows its module, in C++, which has no hooks on forward():
//   - Checkpointed<M> and what apply_checkpointing() wraps: forward() is known to run in the module, by its class, and,
//     once apply_checkpointing() has been given the model, by its dotted name. A module inside that nothing wraps is
//     not known. A wrapped module may be switched off (Checkpointing::set_on), and is known all the same.
//   - named_parameters(), the second function: an op belongs to the module whose parameter it takes. An op that takes
//     none belongs to the module around that of the last op that took one. Classes are not known.
// In Python the modules' calls tell.
//
// Ops of a backward inside the region belong to where backward() was called.
//
// Throws c10::Error, which names the pattern, for one that is malformed or there twice, for an op that there is not
// (the nearest names are suggested), and if there is no rule. A pattern that matches no module is an error where the
// model is known. Elsewhere a warning says so, once for each policy, at the end of the first region in which it was
// asked, with the nearest names of modules that were seen.
//
// The policy has to see each call, as a callable has. An answer is found once for each module and operator of a region.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "ac2/policy.h"

namespace torch {
template <typename Key, typename Value>
class OrderedDict;
}

namespace ac2::policies {

Policy by_module(const std::vector<std::pair<std::string, PolicyDecision>>& rules);

// The same for a model whose modules are called by their types: `named_parameters` is what its named_parameters()
// returns. The policy keeps no parameter alive. Parameters that the model is given later are not known.
Policy by_module(const std::vector<std::pair<std::string, PolicyDecision>>& rules,
                 const torch::OrderedDict<std::string, at::Tensor>& named_parameters);

}  // namespace ac2::policies

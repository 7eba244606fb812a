// The rules of by_module: patterns over modules and ops, each with a decision.
//
//   const ModuleRules rules = ModuleRules::parse({{"layers.*.mlp :: aten.gelu", CheckpointPolicy::PREFER_RECOMPUTE}});
//   const ModuleRules::Matching at = rules.at(place, ModuleName::kOutermost);  // the rules whose modules match
//   rules.decide(at, op);                                                      // the first of them that lists the op
//
// Threads: const ModuleRules may be used by many at once.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ac2/internal/modules/module_path.h"
#include "ac2/internal/modules/module_stack.h"
#include "ac2/policy.h"
#include "policies/internal/common/op_names.h"

namespace ac2::policies::internal {

class ModuleRules {
 public:
  // The rules whose modules match at some place, by number, in order.
  using Matching = std::vector<uint32_t>;

  // Throws c10::Error, which names the pattern, for a pattern that is malformed or there twice, for an op that there is
  // not, and if there is no rule.
  static ModuleRules parse(const std::vector<std::pair<std::string, PolicyDecision>>& rules);

  // By the module of `model` in which ops run there, and those around it.
  Matching at(const ac2::internal::ModulePlace& place, int64_t model) const;
  // By names alone.
  Matching at(const std::string& path) const;
  // Null if no rule of these lists the op.
  const PolicyDecision* decide(const Matching& matching, const c10::OperatorName& op) const;

  // Says of the patterns that match none of `known`, nor anything at `places`, which they are, and what may be meant.
  // Empty if there are none. `where` ends the sentence that says so: "in the model".
  std::string complaint(const ac2::internal::KnownModules& known,
                        const std::vector<const ac2::internal::ModulePlace*>& places, const std::string& where) const;

 private:
  struct Rule {
    std::string text;       // as it was written
    std::string path_text;  // the part of it that names modules
    std::string key;        // equal for patterns that mean the same
    ac2::internal::PathPattern path;
    std::string class_name;      // empty if the pattern cannot be one
    bool is_everything = false;  // "**", which matches outside of all modules too
    std::optional<OpNameSet> ops;
    PolicyDecision decision;

    bool has_class(const std::string& name) const;
    bool matches(const ac2::internal::ModulePlace& place, int64_t model) const;
  };

  static Rule parse_one(const std::string& text, PolicyDecision decision);

  std::vector<Rule> rules_;
};

}  // namespace ac2::policies::internal

// The kinds of policies and budgets under which a program must give the bits of plain autograd.
#pragma once

#include <vector>

#include "ac2/policy.h"
#include "ac2/scope.h"
#include "tests/support/regions.h"

namespace ac2::test {

struct Way {
  const char* name;
  Policy policy;
  ScopeOptions options = {};
};

// With verify mode, which ends at a write that no dispatcher sees.
inline std::vector<Way> all_ways(bool verify = true) {
  const SaveWithHooks hooks{[](const at::Tensor& t) { return c10::IValue(t.clone()); },
                            [](const c10::IValue& packed) { return packed.toTensor(); }};
  const Policy packs = [hooks](const OpContext&) -> PolicyDecision { return hooks; };
  std::vector<Way> ways = {{"recompute_all", "recompute_all"},
                           {"must_save_all", "must_save_all"},
                           {"save_ops", saving({"aten::mul.Tensor"})},
                           {"packs", packs},
                           {"a budget", "recompute_all", {.memory_budget = int64_t{1} << 20}},
                           {"a tight budget", "must_save_all", {.memory_budget = MemoryBudget::soft(64)}},
                           {"whatever_fits", "recompute_all", {.memory_budget = whatever_fits()}}};
  if (verify) {
    ways.push_back({"verify", "recompute_all", {.verify = true}});
  }
  return ways;
}

}  // namespace ac2::test

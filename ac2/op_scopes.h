// Blocks inside a region whose ops are all recomputed, or all saved, whatever the policy prefers.
//
//   ac2::PolicyScope scope("recompute_all");  // recompute all ...
//   at::Tensor a = first->forward(x);
//   {
//     ac2::SaveScope save;
//     a = attention->forward(a);            // ... but what attention computes
//   }
//
// These scopes are for the ops of their thread between construction and destruction. Outside a region they do nothing,
// so that a model that uses them also runs without checkpointing. If a policy has the opposite MUST decision for an op,
// that is the error "Conflicting policies", as it is everywhere. Lifetime and threads: they are local variables, as
// PolicyScope is.
#pragma once

#include <memory>

#include "ac2/scope.h"

namespace ac2 {

// MUST_RECOMPUTE.
class RecomputeScope {
 public:
  [[nodiscard]] RecomputeScope();
  // As ~PolicyScope.
  ~RecomputeScope() noexcept(false);
  RecomputeScope(const RecomputeScope&) = delete;
  RecomputeScope& operator=(const RecomputeScope&) = delete;

 private:
  std::shared_ptr<internal::ScopeState> state_;  // null outside a region
};

// MUST_SAVE: the tape holds all results of the calls that backward needs.
class SaveScope {
 public:
  [[nodiscard]] SaveScope();
  ~SaveScope() noexcept(false);
  SaveScope(const SaveScope&) = delete;
  SaveScope& operator=(const SaveScope&) = delete;

 private:
  std::shared_ptr<internal::ScopeState> state_;
};

}  // namespace ac2

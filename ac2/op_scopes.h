// Single calls inside a region that are to be recomputed, or saved, whatever the policy prefers.
//
//   ac2::PolicyScope scope;                 // recompute all ...
//   at::Tensor a = first->forward(x);
//   {
//     ac2::SaveScope save;
//     a = attention->forward(a);            // ... but what attention computes
//   }
//
// For the ops of this thread between construction and destruction. Outside a region they do nothing, so that a model
// that uses them runs without checkpointing too. A MUST decision of a policy to the contrary is an error, "Conflicting
// policies", as everywhere.
// Lifetime and threads: as PolicyScope, local variables.
#pragma once

#include <memory>

#include "ac2/scope.h"

namespace ac2 {

// MUST_RECOMPUTE.
class RecomputeScope {
 public:
  RecomputeScope();
  // As ~PolicyScope.
  ~RecomputeScope() noexcept(false);
  RecomputeScope(const RecomputeScope&) = delete;
  RecomputeScope& operator=(const RecomputeScope&) = delete;

 private:
  std::shared_ptr<internal::ScopeState> state_;  // null outside a region
};

// MUST_SAVE: of what the calls compute, what backward needs is held.
class SaveScope {
 public:
  SaveScope();
  ~SaveScope() noexcept(false);
  SaveScope(const SaveScope&) = delete;
  SaveScope& operator=(const SaveScope&) = delete;

 private:
  std::shared_ptr<internal::ScopeState> state_;
};

}  // namespace ac2

#include "ac2/op_scopes.h"

#include "ac2/internal/region/close_scope.h"
#include "ac2/internal/region/region.h"
#include "ac2/policy_instance.h"

namespace ac2 {
namespace {

std::shared_ptr<internal::ScopeState> open_inside(CheckpointPolicy decision, const char* name) {
  internal::ThreadRegions& regions = internal::ThreadRegions::here();
  if (regions.recording() == nullptr) return nullptr;
  return regions.open(enter_policy(Policy::constant(decision).named(name)));
}

}  // namespace

RecomputeScope::RecomputeScope() : state_(open_inside(CheckpointPolicy::MUST_RECOMPUTE, "RecomputeScope")) {}

RecomputeScope::~RecomputeScope() noexcept(false) {
  if (state_) internal::close_scope(state_);
}

SaveScope::SaveScope() : state_(open_inside(CheckpointPolicy::MUST_SAVE, "SaveScope")) {}

SaveScope::~SaveScope() noexcept(false) {
  if (state_) internal::close_scope(state_);
}

}  // namespace ac2

// The one answer to the question what becomes of an op's result, made of what the policies have decided. Recording, the
// values under a budget, tags and names all take it from here.
//
//   policies decide        without a budget   under a budget   the budget drops it
//   MUST_SAVE              save               save             never
//   MUST_CPU_OFFLOAD       save               save             never
//   PREFER_SAVE            save               keep             after those that policies prefer to recompute
//   PREFER_CPU_OFFLOAD     save               keep             the same
//   PREFER_RECOMPUTE       recompute          keep             first
//   MUST_RECOMPUTE         recompute          recompute        first, where a replay has brought it back
//
// A result that no replay could compute again is saved, whatever policies decide; NodeBuilder finds that out.
#pragma once

#include "ac2/internal/eviction/evictor_ids.h"
#include "ac2/internal/graph/value_state.h"
#include "ac2/policy.h"

namespace ac2::internal {

struct DecidedResult {
  Decided decided = Decided::kRecompute;
  Retention retention = Retention::kPreferRecompute;
};

inline DecidedResult decided_result(const PolicyDecision& decision, bool has_budget) {
  if (decision.saves()) {
    const Retention retention = decision.is_must() ? Retention::kMustSave : Retention::kPreferSave;
    return {has_budget && !decision.is_must() ? Decided::kKeep : Decided::kSave, retention};
  }
  return {has_budget && !decision.is_must() ? Decided::kKeep : Decided::kRecompute, Retention::kPreferRecompute};
}

}  // namespace ac2::internal

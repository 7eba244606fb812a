// An outlook says what becomes of the results of a call, as far as that is known.
//
//   Outlook outlook = Outlook::of(known, …);   // before the op runs; `known` is null if a policy has to see the call
//   …the op runs, and policies see the call…
//   outlook = Outlook::of(&decision, …);       // once more: a policy has decided, or the op has opened a scope
//
// NodeBuilder has the last word, result by result. A result that no replay could compute again is saved, whatever the
// outlook says. A result that offloading leaves on its device stays in place.
//
// Threads: a value.
#pragma once

#include "ac2/internal/graph/decided_result.h"
#include "ac2/policy.h"

namespace ac2::internal {

struct Outlook {
  DecidedResult result = {};  // as long as nothing is known, results may have to be computed again
  bool by_name = false;       // the same, because a name may say so later
  bool in_place = false;      // results are surely saved, by reference,
  bool offload = false;       // but for those that may leave their device

  bool may_recompute() const { return result.decided != Decided::kSave; }

  static Outlook of(const PolicyDecision* decision, bool names_decide, bool has_budget) {
    Outlook outlook;
    outlook.by_name = names_decide;
    if (decision != nullptr) {
      outlook.result = decided_result(*decision, has_budget);
      outlook.in_place = !outlook.may_recompute() && !decision->form();
      outlook.offload = decision->offloads();
    }
    return outlook;
  }
};

}  // namespace ac2::internal

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

#include "ac2/policy.h"

namespace ac2::internal {

struct Outlook {
  bool recompute = true;  // results may have to be computed again
  bool by_name = false;   // the same, because a name may say so later
  bool in_place = false;  // results are surely saved, by reference,
  bool offload = false;   // but for those that may leave their device

  static Outlook of(const PolicyDecision* decision, bool names_decide, bool has_budget) {
    Outlook outlook;
    outlook.by_name = names_decide;
    if (decision != nullptr) {
      // A budget may evict what policies only prefer to save.
      outlook.recompute = !decision->saves() || (has_budget && !decision->is_must());
      outlook.in_place = !outlook.recompute && !decision->form();
      outlook.offload = decision->offloads();
    }
    return outlook;
  }
};

}  // namespace ac2::internal

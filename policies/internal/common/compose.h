// A policy made of several, as cheap as the dearest of them: constant if all are, decided by operator if none has to
// see the call. Each region enters all of them, and each is asked of every op, so that those with state see all there
// is.
#pragma once

#include <c10/util/ArrayRef.h>

#include <functional>
#include <optional>
#include <vector>

#include "ac2/policy.h"

namespace ac2::policies::internal {

// Makes one decision of what the policies say, in their order. Of an op every one says something. Of a named tensor of
// which at least one has something to say, each says that, else its decision for the op that computed it; null if that
// is not known. Where it returns null nothing is decided by the name.
using Fold = std::function<std::optional<PolicyDecision>(c10::ArrayRef<std::optional<PolicyDecision>>)>;

Policy compose(std::vector<Policy> policies, Fold fold);

// The first MUST (SaveWithHooks is one), else null.
std::optional<PolicyDecision> first_must(c10::ArrayRef<std::optional<PolicyDecision>> decisions);

}  // namespace ac2::policies::internal

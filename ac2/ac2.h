// Everything of ac2 but the ready-made policies, which are in policies/policies.h.
#pragma once

#include "ac2/context.h"        // IWYU pragma: export
#include "ac2/memory_budget.h"  // IWYU pragma: export
#include "ac2/names.h"          // IWYU pragma: export
#include "ac2/nn/nn.h"          // IWYU pragma: export
#include "ac2/offload.h"        // IWYU pragma: export
#include "ac2/op_scopes.h"      // IWYU pragma: export
#include "ac2/plan.h"           // IWYU pragma: export
#include "ac2/policy.h"         // IWYU pragma: export
#include "ac2/report.h"         // IWYU pragma: export
#include "ac2/scope.h"          // IWYU pragma: export
#include "ac2/trace.h"          // IWYU pragma: export

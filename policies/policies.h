// The ready-made policies.
//
//   | policy                   | saves                                       | recomputes           |
//   |--------------------------|---------------------------------------------|----------------------|
//   | recompute_all()          | nothing                                     | all                  |
//   | must_save_all()          | all that backward needs                     | nothing              |
//   | save_ops({…})            | the listed ops                              | all others           |
//   | recompute_ops({…})       | all that backward needs of the others       | the listed ops       |
//   | save_compute_intensive() | matrix products, convolutions, attention    | all others           |
//
// A new one is a file pair beside these, a line in POLICIES of policies/BUILD, a test, and a line each above and below.
#pragma once

#include "policies/must_save_all.h"           // IWYU pragma: export
#include "policies/recompute_all.h"           // IWYU pragma: export
#include "policies/recompute_ops.h"           // IWYU pragma: export
#include "policies/save_compute_intensive.h"  // IWYU pragma: export
#include "policies/save_ops.h"                // IWYU pragma: export

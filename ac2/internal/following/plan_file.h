// A planned step in a file, so that a job plans once.
//
//   write_plan(step, "plan.json");
//   std::shared_ptr<const PlannedStep> again = read_plan("plan.json");
//
// The file is JSON:
//
//   {"ac2_plan": 5, "bytes": 41943040, "costs": "modelled",
//    "ops": ["aten::mm", "aten::add.Tensor"],             each operator once
//    "decisions": ["PREFER_SAVE", "MUST_RECOMPUTE"],      each decision once
//    "calls": [[0, 4096, 1], null, [1, 4096, 0]],         by number: operator, bytes of its results, decision
//    "crc32": "0f3a77c1"}                                 of all bytes of the file before the comma ahead of it
//
// A decision that is a form is an object with the form's name (Form::name()): {"form": "quantized 8 bits, seed 0"}. A
// plan that copies results to the host's memory has after "costs" the bounds of its copies:
//
//    "copies": {"min_bytes": 1048576, "in_flight_bytes": 5242880, "read_ahead_bytes": 5242880}
//
// A plan that was made with a form that is not exact has "inexact": true: ops that choose by the numbers are saved
// (PlannedStep::is_inexact).
//
// A null call is an op that no policy is asked about. The file names operators as LibTorch's schemas do, and so fits
// every LibTorch that has these operators. Files of versions before 5 are not read any more. Whether it
// fits the program is seen op by op when a region follows it.
#pragma once

#include <memory>
#include <string>

#include "ac2/internal/following/planned_step.h"

namespace ac2::internal {

// Replaces the file as a whole: a reader has the old plan or the new one, also while other threads and processes write
// it. A symbolic link is followed and stays. Throws c10::Error if the file cannot be written, and if the path is that
// of something else than a regular file, which is left alone; then no file is left that was not there before.
void write_plan(const PlannedStep& plan, const std::string& path);

// Throws c10::Error if there is no such file, if it is not a plan of this version, or if it is damaged, and if it has
// an operator or a form that neither this process nor `own` has.
std::shared_ptr<const PlannedStep> read_plan(const std::string& path, const Forms& own);

}  // namespace ac2::internal

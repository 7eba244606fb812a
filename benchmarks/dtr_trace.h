// Reads a step recorded by the prototype of Dynamic Tensor Rematerialization (arXiv 2006.09616): one JSON object a
// line.
//
//   absl::StatusOr<ac2::internal::RecordedStep> step = ac2::benchmarks::read_dtr_trace("densenet121.log");
//
// Lines before the annotation START are skipped. Costs are ns. MUTATE is an op that makes a new value for each
// name it writes; other names of the old value keep that. A constant stays to the end, whether or not its name does.
// Errors name the line, what was found and what was expected.
#pragma once

#include <istream>
#include <string>

#include "absl/status/statusor.h"
#include "benchmarks/simulator/step_simulator.h"

namespace ac2::benchmarks {

absl::StatusOr<internal::RecordedStep> read_dtr_trace(const std::string& path);
// `name` is for messages.
absl::StatusOr<internal::RecordedStep> read_dtr_trace(std::istream& lines, const std::string& name);

}  // namespace ac2::benchmarks

// Regions as the JSON that the page of write_report() reads.
#pragma once

#include <string>
#include <vector>

#include "ac2/internal/observe/trace_log.h"

namespace ac2::internal {

// There is no '<' in it, so that it can stand inside a page. Times are nanoseconds since the first region began.
std::string report_data(const std::vector<TraceLog>& logs);

}  // namespace ac2::internal

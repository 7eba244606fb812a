#include "ac2/report.h"

#include <c10/util/Exception.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "ac2/internal/libtorch/storage_names.h"
#include "ac2/internal/observe/held_values.h"
#include "ac2/internal/observe/log_of.h"
#include "ac2/internal/region/trace_access.h"
#include "ac2/internal/report/chrome_trace.h"
#include "ac2/internal/report/dot.h"
#include "ac2/internal/report/explain.h"
#include "ac2/internal/report/held_text.h"
#include "ac2/internal/report/report_data.h"
#include "ac2/internal/report/report_page.h"

namespace ac2 {

using internal::TraceLog;

namespace {

TraceLog log_of(const Trace& trace) {
  return internal::log_of(internal::TraceAccess::tape(trace));
}

void write(const std::string& path, const std::vector<TraceLog>& logs) {
  errno = 0;
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << internal::report_page(internal::report_data(logs));
  file.close();
  TORCH_CHECK(file.good(), "Cannot write the report to \"", path,
              "\": ", errno != 0 ? std::strerror(errno) : "unknown error",
              ". Give the name of a file in a directory that exists and that you may write to.");
}

}  // namespace

std::string explain(const Trace& trace) {
  return internal::explain(log_of(trace));
}

std::string explain_held() {
  return internal::held_text(internal::held_values(internal::storage_names()));
}

std::string to_dot(const Trace& trace) {
  return internal::to_dot(log_of(trace));
}

std::string to_chrome_trace(const Trace& trace) {
  return internal::to_chrome_trace(log_of(trace));
}

void write_report(const Trace& trace, const std::string& path) {
  write(path, {log_of(trace)});
}

void write_report(const std::vector<std::shared_ptr<const Trace>>& traces, const std::string& path) {
  TORCH_CHECK(!traces.empty(), "write_report was given no trace to write to \"", path,
              "\". Collect PolicyScope::trace() of the step's regions.");
  std::vector<TraceLog> logs;
  for (const auto& trace : traces) {
    TORCH_CHECK(trace != nullptr, "write_report was given a null trace at position ", logs.size(), " of ",
                traces.size(), " for \"", path, "\". A module's last_trace() is null before its first forward.");
    logs.push_back(log_of(*trace));
  }
  write(path, logs);
}

}  // namespace ac2

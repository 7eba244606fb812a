// Printers, outside the engine: they see summaries alone.
#include <c10/util/Exception.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ac2/internal/tape.h"
#include "ac2/internal/trace_access.h"
#include "ac2/policy.h"
#include "ac2/trace.h"

namespace ac2 {

namespace {

// For both formats: operator names are letters, digits, '_', ':' and '.', but an op of the user's own may be anything.
std::string escape(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      escaped += '\\';
    }
    escaped += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return escaped;
}

}  // namespace

std::string to_dot(const Trace& trace) {
  std::string dot = "digraph ac2 {\n  rankdir=TB;\n  node [shape=box, fontname=\"monospace\"];\n";
  bool from_outside = false;
  for (const internal::NodeSummary& node : internal::TraceAccess::tape(trace).summarize()) {
    absl::StrAppend(&dot, "  op", node.index, " [label=\"", node.index, ": ", escape(node.name), "\\n",
                    to_string(node.decision), ", ", node.output_bytes, " B");
    if (node.replays > 0) {
      absl::StrAppend(&dot, "\\nreplayed ", node.replays, "x");
    }
    absl::StrAppend(&dot, "\"", node.saved_bytes > 0 ? ", style=filled, fillcolor=lightblue" : "", "];\n");
    for (const int64_t input : node.inputs) {
      if (input >= 0) {
        absl::StrAppend(&dot, "  op", input, " -> op", node.index, ";\n");
      } else {
        absl::StrAppend(&dot, "  outside -> op", node.index, ";\n");
        from_outside = true;
      }
    }
  }
  if (from_outside) {
    absl::StrAppend(&dot, "  outside [label=\"from outside the region\", style=filled, fillcolor=lightblue];\n");
  }
  absl::StrAppend(&dot, "}\n");
  return dot;
}

std::string to_chrome_trace(const Trace& trace) {
  std::string json = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
  absl::StrAppend(&json, "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":0,\"args\":{\"name\":\"ac2 region\"}},\n");
  absl::StrAppend(&json, "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":0,\"tid\":0,\"args\":{\"name\":\"forward\"}}");
  int64_t held = 0;
  for (const internal::NodeSummary& node : internal::TraceAccess::tape(trace).summarize()) {
    absl::StrAppend(&json, ",\n{\"name\":\"", escape(node.name),
                    "\",\"cat\":\"forward\",\"ph\":\"X\",\"pid\":0,\"tid\":0,");
    absl::StrAppend(&json, "\"ts\":", node.index, ",\"dur\":1,\"args\":{\"decision\":\"", to_string(node.decision),
                    "\",\"output_bytes\":", node.output_bytes, ",\"saved_bytes\":", node.saved_bytes,
                    ",\"replays\":", node.replays, "}}");
    held += node.saved_bytes;
    absl::StrAppend(&json, ",\n{\"name\":\"saved results\",\"ph\":\"C\",\"pid\":0,\"ts\":", node.index,
                    ",\"args\":{\"bytes\":", held, "}}");
  }
  absl::StrAppend(&json, "\n]}\n");
  return json;
}

}  // namespace ac2

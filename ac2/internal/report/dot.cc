#include "ac2/internal/report/dot.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "ac2/internal/report/explain_text.h"
#include "ac2/policy.h"

namespace ac2::internal {

namespace {

// The names of LibTorch's ops are letters, digits, '_', ':' and '.', but the user's own ops may have any name.
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

std::string op_box(const TraceLog& log, const TraceLog::Op& op) {
  int64_t bytes = 0;
  bool saved = false;
  for (const int64_t output : op.outputs) {
    bytes += log.values[output].bytes;
    saved |= log.values[output].last_held_bytes > 0;
  }
  std::string box = absl::StrCat("  op", op.index, " [label=\"", op.index, ": ", escape(op.name), "\\n",
                                 op.is_node ? to_string(op.decision) : kKeptByReference, ", ", bytes, " B");
  if (op.scope != TraceLog::kNone) {
    absl::StrAppend(&box, "\\nby ", escape(scope_name(log.scopes[op.scope])));
  }
  if (op.replays > 0) {
    absl::StrAppend(&box, "\\nreplayed ", op.replays, "x");
  }
  absl::StrAppend(&box, "\"", saved ? ", style=filled, fillcolor=lightblue" : "", "];\n");
  return box;
}

}  // namespace

std::string to_dot(const TraceLog& log) {
  std::string dot = "digraph ac2 {\n  rankdir=TB;\n  node [shape=box, fontname=\"monospace\"];\n";
  bool from_outside = false;
  for (const TraceLog::Op& op : log.ops) {
    if (!op.is_node && op.outputs.empty()) {
      continue;
    }
    dot += op_box(log, op);
    for (const int64_t input : op.inputs) {
      const int64_t producer = log.values[input].op;
      if (producer != TraceLog::kNone) {
        absl::StrAppend(&dot, "  op", log.ops[producer].index, " -> op", op.index, ";\n");
      } else {
        absl::StrAppend(&dot, "  outside -> op", op.index, ";\n");
        from_outside = true;
      }
    }
  }
  if (from_outside) {
    absl::StrAppend(&dot, "  outside [label=\"", kOutside, "\", style=filled, fillcolor=lightblue];\n");
  }
  absl::StrAppend(&dot, "}\n");
  return dot;
}

}  // namespace ac2::internal

#include "ac2/internal/report/large_op.h"

#include <algorithm>
#include <charconv>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "ac2/internal/report/chunk_advice.h"
#include "ac2/internal/report/explain_text.h"
#include "ac2/internal/report/units.h"

namespace ac2::internal {

namespace {

constexpr int64_t kLeastBytes = int64_t{1} << 20;
constexpr int64_t kMostChunks = 64;

// Of "[8, 128] float" 8; 0 if there is none.
int64_t rows_of(const std::string& shape) {
  int64_t rows = 0;
  if (shape.starts_with('[')) {
    std::from_chars(shape.data() + 1, shape.data() + shape.size(), rows);
  }
  return rows;
}

struct Large {
  int64_t op = TraceLog::kNone;
  int64_t value = TraceLog::kNone;
  int64_t bytes = 0;
};

Large largest_product(const TraceLog& log) {
  Large large;
  for (size_t i = 0; i < log.ops.size(); ++i) {
    if (!is_product_by_rows(log.ops[i].name)) continue;
    for (const int64_t value : log.ops[i].outputs) {
      if (log.values[value].bytes > large.bytes && rows_of(log.values[value].shape) > 1) {
        large = {static_cast<int64_t>(i), value, log.values[value].bytes};
      }
    }
  }
  return large;
}

// The values that are there because of the large one: itself, and what the ops make that take it.
std::vector<bool> around(const TraceLog& log, const Large& large) {
  std::vector<bool> belongs(log.values.size());
  belongs[large.value] = true;
  for (const TraceLog::Op& op : log.ops) {
    if (std::find(op.inputs.begin(), op.inputs.end(), large.value) != op.inputs.end()) {
      for (const int64_t output : op.outputs) belongs[output] = true;
    }
  }
  return belongs;
}

// The most that the region held at a time of other values.
int64_t most_held_besides(const TraceLog& log, const std::vector<bool>& belongs) {
  int64_t held = 0, most = 0;
  if (!log.timed) {
    for (size_t i = 0; i < log.values.size(); ++i) held += belongs[i] ? 0 : log.values[i].held_bytes;
    return held;
  }
  std::vector<int64_t> by_value(log.values.size());
  for (const TraceLog::Event& event : log.events) {
    if (event.value == TraceLog::kNone || belongs[event.value]) continue;
    int64_t& bytes = by_value[event.value];
    held -= bytes;
    switch (event.change) {
      case TraceLog::Change::HOLD:
      case TraceLog::Change::REPLAY:
        bytes = log.values[event.value].bytes;
        break;
      case TraceLog::Change::RELEASE:
      case TraceLog::Change::DROP:
        bytes = 0;
        break;
      default:  // counted by the events beside it
        break;
    }
    held += bytes;
    most = std::max(most, held);
  }
  return most;
}

}  // namespace

std::vector<std::string> large_op_lines(const TraceLog& log) {
  const Large large = largest_product(log);
  if (large.bytes < kLeastBytes) {
    return {};
  }
  const std::vector<bool> belongs = around(log, large);
  int64_t together = large.bytes;  // its gradient
  for (size_t i = 0; i < log.values.size(); ++i) {
    together += belongs[i] ? log.values[i].bytes : 0;
  }
  const int64_t besides = most_held_besides(log, belongs);
  if (together <= besides) {
    return {};
  }
  const int64_t rows = rows_of(log.values[large.value].shape);
  const int64_t needed = std::min((together - 1) / std::max<int64_t>(besides, 1) + 1, kMostChunks);
  const int64_t chunks = std::clamp<int64_t>(needed, 2, rows);
  const std::string& where = log.ops[large.op].where;
  return {absl::StrCat("One op is most of the peak: ", op_name(log, large.op), " ", log.values[large.value].shape,
                       where.empty() ? "" : " ", where, ": its result of ", bytes_text(large.bytes),
                       ", those of the ops that take it, and its gradient have ", bytes_text(together),
                       ". Of all else the region held ", bytes_text(besides), " at most."),
          "  " + chunk_sentence(chunks, "these would have ", together / chunks)};
}

}  // namespace ac2::internal

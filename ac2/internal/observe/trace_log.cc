#include "ac2/internal/observe/trace_log.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace ac2::internal {

const char* to_string(TraceLog::Change change) {
  switch (change) {
    case TraceLog::Change::HOLD:
      return "hold";
    case TraceLog::Change::RELEASE:
      return "release";
    case TraceLog::Change::REPLAY:
      return "replayed";
    case TraceLog::Change::DROP:
      return "drop";
    case TraceLog::Change::EVICT:
      return "evict";
    case TraceLog::Change::COPY:
      return "copy";
    case TraceLog::Change::PACK:
      return "pack";
    case TraceLog::Change::OFFLOAD:
      return "offload";
  }
  return "";
}

const char* to_string(TraceLog::Source source) {
  switch (source) {
    case TraceLog::Source::OP:
      return "op";
    case TraceLog::Source::TAG:
      return "tag";
    case TraceLog::Source::NAME:
      return "name";
  }
  return "";
}

const char* to_string(TraceLog::Bound::Kind kind) {
  switch (kind) {
    case TraceLog::Bound::Kind::NONE:
      return "none";
    case TraceLog::Bound::Kind::STRICT:
      return "strict";
    case TraceLog::Bound::Kind::SOFT:
      return "soft";
    case TraceLog::Bound::Kind::WITHOUT_NUMBER:
      return "whatever fits";
    case TraceLog::Bound::Kind::PEAK:
      return "peak";
  }
  return "";
}

std::string shape_text(c10::IntArrayRef sizes, c10::ScalarType type) {
  return absl::StrCat("[", absl::StrJoin(sizes, ", "), "] ", absl::AsciiStrToLower(c10::toString(type)));
}

}  // namespace ac2::internal

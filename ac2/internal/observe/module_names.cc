#include "ac2/internal/observe/module_names.h"

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"

namespace ac2::internal {

std::string ModuleNames::next(std::string_view parameter) {
  if (parameter.empty()) {
    return last_.empty() ? "" : absl::StrCat("after ", last_);
  }
  const size_t dot = parameter.rfind('.');
  last_ = dot == std::string_view::npos ? parameter : parameter.substr(0, dot);
  return last_;
}

void name_places(TraceLog& log, const StorageNames& names) {
  if (names.empty()) {
    return;
  }
  const absl::flat_hash_map<const c10::StorageImpl*, std::string> name_of(names.begin(), names.end());
  const auto parameter = [&](int64_t value) -> const std::string* {
    const auto& origin = log.values[value].origin;
    const auto name = name_of.find(origin._unsafe_get_target());
    // The address of a storage that is gone may be another one's in `names`.
    return name == name_of.end() || origin.expired() ? nullptr : &name->second;
  };
  ModuleNames modules;
  for (TraceLog::Op& op : log.ops) {
    std::string_view first;
    for (const int64_t input : op.inputs) {
      if (const std::string* name = parameter(input)) {
        log.values[input].name = *name;
        first = first.empty() ? *name : first;
      }
    }
    const std::string place = modules.next(first);
    op.where = first.empty() ? place : absl::StrCat("in ", place);
  }
}

}  // namespace ac2::internal

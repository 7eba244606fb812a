// Where in the program each op of a sequence belongs, by the names of the parameters that ops take.
//
//   ModuleNames modules;
//   modules.next("layers.3.mlp.weight");    // "layers.3.mlp"
//   modules.next("");                       // "after layers.3.mlp": an op that takes no parameter
//
//   name_places(log, storage_names());      // all ops and values of a log
//
// Threads: an object, or a log, is for one thread at a time.
#pragma once

#include <string>
#include <string_view>

#include "ac2/internal/libtorch/storage_names.h"
#include "ac2/internal/observe/trace_log.h"

namespace ac2::internal {

class ModuleNames {
 public:
  // Of the next op, whose first parameter has this name, or that takes none. Empty as long as no op has taken one.
  std::string next(std::string_view parameter);

 private:
  std::string last_;
};

// Fills TraceLog::Op::where, and TraceLog::Value::name of parameters. Without names it does nothing.
void name_places(TraceLog& log, const StorageNames& names);

}  // namespace ac2::internal
